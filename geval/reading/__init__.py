"""Reading a judge's reply: where the answer stands, its level, its language."""
