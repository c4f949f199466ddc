"""The Jinja environment of templates: a small language that ends, whatever is written in it.

A template may be hostile (downloaded, or proposed by a model). Three things hold it:

- *Forms*: only the nodes of `_ALLOWED`, known filters and tests, and constant names of parts; no
  attribute of any Python object is reachable, only items of mappings and a few of the loop.
- *A budget*: each rendering has so many steps (a pass through a loop, macro, block or part costs
  what stands in it) and so many characters that may be made. What would exceed it is an error
  before the work is done.
- *Judged text* is opaque (`geval.rendering.fence`) and is printed between its markers.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.environment import TemplateModule
from jinja2.runtime import BlockReference, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from geval.errors import nearest
from geval.rendering.fence import Fenced, Judged
from geval.rendering.filters import FILTERS, PASSING, TESTS, kind_of, list_of, number_of, text_of
from geval.rendering.josa import is_pair, no_pair, particle

STEPS = 500_000
"""What one rendering may do, counted in nodes of the template; it takes well under a second."""

CHARACTERS = 4_000_000
"""What one rendering may make beyond its data."""

MAX_RANGE = 1_000
MAX_SOURCE = 200_000
"""Characters of a template file or part."""

MAX_NODES = 10_000
MAX_DEPTH = 60

_CALL = 10


@dataclass
class Budget:
    """What is left of one rendering's steps and characters."""

    steps: int = STEPS
    characters: int = CHARACTERS

    @classmethod
    def for_data(cls, characters: int, texts: int) -> Budget:
        """A budget that leaves room for long documents: they are data, not the template's work."""
        return cls(STEPS + 200 * texts, CHARACTERS + 4 * characters)


_BUDGET: ContextVar[Budget | None] = ContextVar("geval_template_budget", default=None)


@contextmanager
def within(budget: Budget) -> Iterator[None]:
    """Charge what is rendered inside to `budget`; an outer one goes on where there is one."""
    token = _BUDGET.set(_BUDGET.get() or budget)
    try:
        yield
    finally:
        _BUDGET.reset(token)


def step(count: int) -> None:
    """Take `count` steps. Raises TemplateRuntimeError where none are left."""
    budget = _BUDGET.get()
    if budget is None:
        return
    budget.steps -= count
    if budget.steps < 0:
        raise jinja2.TemplateRuntimeError(
            f"does more than {STEPS:,} steps: loops, macros or lists that are too large"
        )


def hold(characters: int) -> None:
    """Make room for `characters`. Raises TemplateRuntimeError where there is none."""
    budget = _BUDGET.get()
    if budget is None:
        return
    budget.characters -= characters
    if budget.characters < 0:
        raise jinja2.TemplateRuntimeError(
            f"makes or prints more than {CHARACTERS:,} characters beyond its data"
        )


def charge(*values: Any) -> None:
    """Pay for looking at `values` with all that is in them."""
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            hold(len(value))
        elif isinstance(value, (list, tuple, range)):
            step(len(value) + 1)
            stack.extend(value)
        elif isinstance(value, Mapping):
            step(2 * len(value) + 1)
            stack.extend(value.keys())
            stack.extend(value.values())


def printed(value: Any) -> str:
    """What `{{ value }}` prints: text, a number, or judged text in its fence; lists by line."""
    if isinstance(value, Judged):
        hold(len(value.fenced))
        return value.fenced
    if isinstance(value, str):  # also what a buffer holds already
        hold(len(value))
        return value
    if isinstance(value, (list, tuple)):
        step(len(value))
        if any(isinstance(item, (list, tuple, Mapping)) for item in value):
            raise jinja2.TemplateRuntimeError("a list of lists is printed: print its parts")
        result = joined([printed(item) for item in value], "\n")
        return result.fenced if isinstance(result, Judged) else result
    if isinstance(value, Undefined):
        return str(value)  # raises, with the variable's name
    if isinstance(value, Mapping) or callable(value) or isinstance(value, (Namespace, LoopContext)):
        raise jinja2.TemplateRuntimeError(f"{kind_of(value)} is printed: print a part of it")
    return text_of(value)


def joined(pieces: Iterable[Any], between: str = "") -> str | Judged:
    """Pieces of a prompt as one; with judged text among them it is judged text."""
    texts = [piece if isinstance(piece, str) else printed(piece) for piece in pieces]
    hold(sum(map(len, texts)) + len(between) * len(texts))
    text = between.join(texts)
    return Judged(text) if any(isinstance(piece, Fenced) for piece in texts) else text


def callable_in_templates(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function or method as one that templates may call."""
    function.in_templates = True  # type: ignore[attr-defined]
    return function


@callable_in_templates
def _range(*arguments: int) -> range:
    steps = range(*(int(number_of(argument)) for argument in arguments))
    if len(steps) > MAX_RANGE:
        raise jinja2.TemplateRuntimeError(f"range of {len(steps)} steps (at most {MAX_RANGE})")
    return steps


@callable_in_templates
def _namespace(**values: Any) -> Namespace:
    return Namespace(**values)


def _join(value: Any, between: str = "", attribute: str | None = None) -> str | Judged:
    items = list_of(value)
    if attribute is not None:
        items = [item[text_of(attribute)] for item in items]
    return joined([printed(item) for item in items], text_of(between))


def _josa(value: Any, pair: str) -> str | Judged:
    """What `{{ value }}` prints, and the Korean particle that fits it."""
    word = value.text if isinstance(value, Judged) else text_of(value)
    return joined([printed(value), particle(word[-80:], text_of(pair))])


_PRINTING: dict[str, Callable[..., Any]] = {"join": _join, "josa": _josa}
"""Filters that print what they are given: judged text keeps its fence."""


def _slice(value: Any, start: Any, stop: Any, stride: Any) -> Any:
    if not isinstance(value, (str, list, tuple, range, Judged)):
        list_of(value)  # raises
    return value[start:stop:stride]


def _paid(function: Callable[..., Any], *, opaque: bool) -> Callable[..., Any]:
    """`function` with its arguments and its result charged; `opaque` takes no judged text.

    With the context as first argument Jinja never calls it while compiling.
    """

    @jinja2.pass_context
    def call(_: Any, *arguments: Any, **options: Any) -> Any:
        step(_CALL)
        charge(*arguments, *options.values())
        if opaque:
            for value in (*arguments, *options.values()):
                if isinstance(value, Judged):
                    value.refuse()
        result = function(*arguments, **options)
        charge(result)
        return result

    return call


def _inner(function: Callable[..., Any]) -> Callable[..., Any]:
    @jinja2.pass_context
    def call(_: Any, *arguments: Any) -> Any:
        return function(*arguments)

    return call


def _pass(value: Any, weight: int) -> list[Any]:
    """What a loop goes over, paid for in advance."""
    items = list_of(value)
    step(len(items) * weight + _CALL)
    return items


def _compared(value: Any) -> Any:
    step(1)
    charge(value)
    return value


_INNER: dict[str, Callable[..., Any]] = {
    "-pass": _inner(_pass),
    "-step": _inner(lambda weight: step(weight)),
    "-concat": _inner(lambda parts: joined([printed(part) for part in parts])),
    "-slice": _paid(_slice, opaque=False),
    "-compared": _inner(_compared),
}
"""What the transformer puts into a template; no template can write these names."""

_ALLOWED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.NSRef, nodes.Const),
    *(nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Keyword, nodes.Getattr, nodes.Getitem),
    *(nodes.Slice, nodes.Call, nodes.Filter, nodes.Test, nodes.Concat, nodes.Compare),
    *(nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Add, nodes.Sub, nodes.Mul, nodes.Div),
    *(nodes.FloorDiv, nodes.Mod, nodes.Pow, nodes.Neg, nodes.Pos, nodes.CondExpr, nodes.For),
    *(nodes.If, nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.With, nodes.Block),
    *(nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport, nodes.Assign),
    nodes.AssignBlock,
)
_WITH_BODY = (nodes.Macro, nodes.CallBlock, nodes.Block)
_LOOP = frozenset({"index", "index0", "revindex", "revindex0", "first", "last", "length", "cycle"})


def check(tree: nodes.Template) -> None:
    """Refuse what no template may hold. Raises TemplateSyntaxError with the line."""
    stack: list[tuple[nodes.Node, int]] = [(tree, 0)]
    count = 0
    while stack:
        node, depth = stack.pop()
        count += 1
        if depth > MAX_DEPTH:
            _fail("nested too deeply", node)
        if count > MAX_NODES:
            _fail(f"more than {MAX_NODES:,} parts: move text out of expressions", node)
        _check_node(node)
        stack.extend((child, depth + 1) for child in node.iter_child_nodes())


def _check_node(node: nodes.Node) -> None:
    if not isinstance(node, _ALLOWED):
        _fail(f"{type(node).__name__} is not available in templates", node)
    if isinstance(node, (nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)):
        name = node.template
        if not (isinstance(name, nodes.Const) and isinstance(name.value, str)):
            what = {"Import": "import", "FromImport": "import"}.get(
                type(node).__name__, type(node).__name__.lower()
            )
            _fail(f'{what} needs a name in quotes, such as "part.jinja": no expression', node)
        if getattr(node, "ignore_missing", False):
            _fail("`ignore missing` is not available: a part is there or it is not", node)
    elif isinstance(node, nodes.For) and node.recursive:
        _fail("a recursive loop is not available", node)
    elif isinstance(node, nodes.Filter) and node.name not in (*FILTERS, *_PRINTING):
        known = [*FILTERS, *_PRINTING]
        _fail(f"unknown filter {node.name!r}. {nearest(node.name, known)}", node)
    elif isinstance(node, nodes.Filter) and node.name == "josa":
        for pair in node.args[:1]:
            if isinstance(pair, nodes.Const) and not is_pair(str(pair.value)):
                _fail(no_pair(str(pair.value)), node)
    elif isinstance(node, nodes.Test) and node.name not in TESTS:
        known = [name for name in TESTS if name.isalpha()]
        _fail(f"unknown test {node.name!r}. {nearest(node.name, known)}", node)
    elif isinstance(node, (nodes.Name, nodes.NSRef)) and node.name == "self":
        _fail("`self` is not available", node)
    elif isinstance(node, nodes.Getattr) and node.attr.startswith("_"):
        _fail(f"the attribute {node.attr!r} is not available", node)
    elif isinstance(node, nodes.Call) and (node.dyn_args or node.dyn_kwargs):
        _fail("`*` and `**` are not available in calls", node)
    elif isinstance(node, nodes.Const) and isinstance(node.value, float):
        if not math.isfinite(node.value):
            _fail("a number that is too large", node)
    elif isinstance(node, nodes.Pair) and not isinstance(node.key, nodes.Const):
        _fail("a mapping has constant keys", node)


def _fail(message: str, node: nodes.Node) -> NoReturn:
    raise jinja2.TemplateSyntaxError(message, max(1, node.lineno or 1))


class _Bounded(NodeTransformer):
    """Puts the budget into a checked tree."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        weight = _weight(node)
        self.generic_visit(node)
        node.iter = _call("-pass", node.iter, nodes.Const(weight))
        return node

    def _headed(self, node: Any) -> nodes.Node:
        weight = _weight(node)
        self.generic_visit(node)
        node.body.insert(0, _toll(weight, node.lineno))
        return node  # type: ignore[no-any-return]

    visit_Macro = visit_CallBlock = visit_Block = visit_Template = _headed

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("-concat", nodes.List(node.nodes, lineno=node.lineno))

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        bounds = (node.arg.start, node.arg.stop, node.arg.step)
        return _call("-slice", node.node, *(b or nodes.Const(None) for b in bounds))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _call("-compared", node.expr)
        for operand in node.ops:
            operand.expr = _call("-compared", operand.expr)
        return node


def _weight(node: nodes.Node) -> int:
    count, stack = 0, [node]
    while stack:
        count += 1
        stack.extend(stack.pop().iter_child_nodes())
    return count


def _call(name: str, node: Any, *arguments: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(arguments), [], None, None, lineno=node.lineno)


def _toll(weight: int, line: int) -> nodes.If:
    return nodes.If(_call("-step", nodes.Const(weight, lineno=line)), [], [], [], lineno=line)


class Environment(ImmutableSandboxedEnvironment):
    """Jinja for templates; `parts` are the only ones that can be extended or included."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})
    concat = staticmethod(joined)  # type: ignore[assignment]

    def __init__(self, parts: Mapping[str, str] | None = None) -> None:
        super().__init__(
            loader=jinja2.FunctionLoader(lambda name: _part(name, parts or {})),
            undefined=jinja2.StrictUndefined,
            autoescape=False,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=False,
            finalize=_inner(printed),
            optimized=False,
            auto_reload=False,
        )
        self.globals.clear()
        self.globals.update(range=_range, namespace=_namespace)
        self.filters.clear()
        for name, function in FILTERS.items():
            self.filters[name] = _paid(function, opaque=name not in PASSING)
        for name, function in _PRINTING.items():
            self.filters[name] = _paid(function, opaque=False)
        self.filters.update(_INNER)
        self.tests.clear()
        self.tests.update({k: _paid(v, opaque=False) for k, v in TESTS.items()})

    def parse(
        self, source: str, name: str | None = None, filename: str | None = None
    ) -> nodes.Template:
        """The checked tree of `source`. Raises TemplateSyntaxError, whatever is wrong with it."""
        with _compiling():
            return super().parse(source, name, filename)

    def compile(self, source: Any, *arguments: Any, **options: Any) -> Any:
        """Compile a checked, bounded template. Raises TemplateSyntaxError."""
        with _compiling():
            return super().compile(source, *arguments, **options)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > MAX_SOURCE:
            raise jinja2.TemplateSyntaxError(
                f"the template has {len(source):,} characters (at most {MAX_SOURCE:,})", 1
            )
        if "\0" in source:
            line = source[: source.index("\0")].count("\n") + 1
            raise jinja2.TemplateSyntaxError("holds a NUL character", line)
        tree = super()._parse(source, name, filename)
        check(tree)
        return tree

    def _generate(self, source: nodes.Template, *arguments: Any, **options: Any) -> str:
        return super()._generate(_Bounded().visit(source), *arguments, **options)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """`obj.attribute`: an item of a mapping, or what a loop or an imported part has."""
        if isinstance(obj, LoopContext):
            known = attribute in _LOOP
        elif isinstance(obj, TemplateModule):
            known = not attribute.startswith("_") and attribute in obj.__dict__
        else:
            known = isinstance(obj, Namespace) and not attribute.startswith("_")
        if known:
            try:
                return getattr(obj, attribute)
            except AttributeError:
                pass
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """`obj[argument]`: an item of a mapping, list or text."""
        if isinstance(obj, Judged):
            obj.refuse()
        if isinstance(argument, Judged):
            argument.refuse()
        step(1)
        position = isinstance(argument, int) and isinstance(obj, (str, list, tuple, range))
        if position or (isinstance(obj, Mapping) and isinstance(argument, (str, int, float))):
            try:
                return obj[argument]
            except (KeyError, IndexError):
                pass
        if isinstance(obj, Undefined):
            return obj[argument]  # raises, with the variable's name
        if not isinstance(argument, (str, int, float)):
            raise jinja2.TemplateRuntimeError(f"{kind_of(argument)} is no name or position")
        return self.undefined(obj=obj, name=argument)  # type: ignore[arg-type]

    def call(self, context: Any, obj: Any, /, *arguments: Any, **options: Any) -> Any:
        """Call a macro, a block, or a function made for templates."""
        step(_CALL)
        if isinstance(obj, Undefined):
            return obj()  # raises, with the variable's name
        cycle = inspect.ismethod(obj) and isinstance(obj.__self__, LoopContext)
        known = isinstance(obj, (Macro, BlockReference)) or getattr(obj, "in_templates", False)
        if not (known or cycle):
            raise jinja2.TemplateRuntimeError(f"{kind_of(obj)} cannot be called")
        return super().call(context, obj, *arguments, **options)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic on numbers; `+` also puts two texts or two lists together."""
        step(1)
        for side in (left, right):
            if isinstance(side, Judged):
                side.refuse()
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            hold(len(left) + len(right))
            return left + right
        if operator == "+" and isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            step(len(left) + len(right))
            return [*left, *right]
        for side in (left, right):
            if isinstance(side, (str, list, tuple, Mapping)):
                raise jinja2.TemplateRuntimeError(f"`{operator}` works on numbers only")
            if not isinstance(side, Undefined):
                number_of(side)
        if operator == "**" and not (abs(left) <= 1e6 and abs(right) <= 16):
            raise jinja2.TemplateRuntimeError("`**`: the numbers are too large")
        return number_of(super().call_binop(context, operator, left, right))


def _part(name: str, parts: Mapping[str, str]) -> tuple[str, str, Callable[[], bool]]:
    step(_CALL)
    if name not in parts:
        raise jinja2.TemplateNotFound(name, f"the template part {name!r} is not on the search path")
    return parts[name], name, lambda: True


@contextmanager
def _compiling() -> Iterator[None]:
    """Whatever an odd source does to the parser or to Python's compiler is one kind of error."""
    try:
        yield
    except jinja2.TemplateError:
        raise
    except (RecursionError, MemoryError):
        raise jinja2.TemplateSyntaxError("nested too deeply", 1) from None
    except Exception as error:  # numbers of a thousand digits, twenty nested loops, ...
        raise jinja2.TemplateSyntaxError(f"cannot be compiled: {error}", 1) from None


def line_of(error: BaseException, filename: str) -> int | None:
    """The line of the template `filename` at which `error` was raised, where that is known."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
