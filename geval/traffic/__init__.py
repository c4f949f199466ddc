"""Between scoring and the judges: cache, budgets, limits, deadlines, plan and prices."""
