"""What an operator computes, as text that is the same each time the program builds its plan."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.spark.plans.catalyst import Node, children, class_of


def fingerprint(expressions: Sequence[Node]) -> list[str]:
    """The expressions without names and ids: attributes are numbered as they come up."""
    numbers: dict[str, int] = {}
    return [_text(each, numbers) for each in expressions]


def _text(expression: Node, numbers: dict[str, int]) -> str:
    kind = class_of(expression)
    if kind == "AttributeReference":
        number = numbers.setdefault(str(expression.exprId().toString()), len(numbers))
        return f"#{number} {expression.dataType().catalogString()}"
    if kind == "Literal":
        return f"{expression.toString()} {expression.dataType().catalogString()}"
    if kind == "Alias":
        return _text(expression.child(), numbers)
    inside = ", ".join(_text(child, numbers) for child in children(expression))
    return f"{_name(expression, kind)}({inside})"


def _name(expression: Node, kind: str) -> str:
    """With what tells two uses of a class apart."""
    if kind in ("PythonUDF", "ScalaUDF", "GetStructField"):
        return (
            f"{kind} {expression.prettyName()}"
            if kind == "GetStructField"
            else (f"{kind} {expression.nodeName()}")
        )
    if kind == "Cast":
        return f"Cast to {expression.dataType().catalogString()}"
    return kind
