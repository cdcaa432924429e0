#!/usr/bin/env python3
"""Writes the clients of sessions, in Python and in TypeScript, from the OpenAPI document.

    scripts/clients.py           # writes clients/
    scripts/clients.py --check   # says which files differ, and fails if any does

The names of methods are the document's operation ids. `transport` beside the generated files is written by
hand. Only the standard library is used, and equal documents give equal files.
"""

from __future__ import annotations

import json
import keyword
import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "crates" / "api" / "openapi.json"
CLIENTS = ROOT / "clients"
TAG = "Native: sessions"
NOTE = "Generated from crates/api/openapi.json by scripts/clients.py. Do not edit."
REFERENCE = "#/components/schemas/"

Schema = dict[str, Any]


@dataclass
class Parameter:
    """A parameter of an operation."""

    name: str
    place: str
    required: bool
    schema: Schema
    about: str

    @property
    def words(self) -> list[str]:
        return re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", self.name)

    @property
    def snake(self) -> str:
        return "_".join(word.lower() for word in self.words)

    @property
    def camel(self) -> str:
        first, *rest = (word.lower() for word in self.words)
        return first + "".join(word.capitalize() for word in rest)


@dataclass
class Operation:
    """A method of a path."""

    method: str
    path: str
    id: str
    about: str
    parameters: list[Parameter]
    #: `json`, `bytes`, or none.
    takes: str | None = None
    takes_schema: Schema = field(default_factory=dict)
    takes_required: bool = False
    #: `data`, `bytes`, `lines`, `events`, or `socket`.
    gives: str = "data"
    gives_schema: Schema = field(default_factory=dict)

    def placed(self, *places: str) -> list[Parameter]:
        return [one for one in self.parameters if one.place in places]

    @property
    def snake(self) -> str:
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.id).lower()


def operations(document: Schema) -> list[Operation]:
    """The operations of sessions, in the order of the document."""
    found = []
    for path, item in document["paths"].items():
        for method, shown in item.items():
            if method != "servers" and TAG in shown["tags"]:
                found.append(operation(method, path, shown))
    return found


def operation(method: str, path: str, shown: Schema) -> Operation:
    about = "\n\n".join([shown["summary"] + ".", *filter(None, [shown.get("description")])])
    parameters = [
        Parameter(one["name"], one["in"], one.get("required", False), one["schema"], one.get("description", ""))
        for one in shown.get("parameters", [])
    ]
    made = Operation(method.upper(), path, shown["operationId"], about, parameters)
    if body := shown.get("requestBody"):
        [(kind, content)] = body["content"].items()
        made.takes = {"application/json": "json", "application/octet-stream": "bytes"}[kind]
        made.takes_schema, made.takes_required = content["schema"], body["required"]
    success = next(answer for status, answer in sorted(shown["responses"].items()) if status < "300")
    if "content" not in success:
        made.gives = "socket"
        return made
    [(kind, content)] = success["content"].items()
    schema = content["schema"]
    made.gives = {
        "application/json": "data", "application/octet-stream": "bytes",
        "application/x-ndjson": "lines", "text/event-stream": "events",
    }[kind]
    made.gives_schema = schema["properties"]["data"] if made.gives == "data" else schema
    return made


def named(schema: Any, names: set[str], schemas: Schema) -> None:
    """Adds the names of all types that a schema refers to."""
    if isinstance(schema, list):
        for item in schema:
            named(item, names, schemas)
    elif isinstance(schema, dict):
        target = schema.get("$ref")
        if target and (name := target.removeprefix(REFERENCE)) not in names:
            names.add(name)
            named(schemas[name], names, schemas)
        named(list(schema.values()), names, schemas)


def used(found: list[Operation], schemas: Schema) -> dict[str, Schema]:
    """The types of the operations, by name."""
    names: set[str] = set()
    for one in found:
        named([one.takes_schema, one.gives_schema], names, schemas)
    return {name: schemas[name] for name in sorted(names)}


def variants(name: str, schema: Schema) -> list[tuple[str, Schema]]:
    """The members of a union, each with a name and with what all members have."""
    members = []
    for member in schema["oneOf"]:
        kind = member["properties"]["type"]["const"]
        whole = {
            **member,
            "properties": schema.get("properties", {}) | member["properties"],
            "required": schema.get("required", []) + member.get("required", []),
        }
        members.append((name + "".join(word.capitalize() for word in kind.split("_")), whole))
    return members


def kinds(schema: Schema) -> list[str]:
    kind = schema.get("type", [])
    return [kind] if isinstance(kind, str) else kind


class Language:
    """How types are written."""

    any: str
    plain: dict[str, str]
    join = " | "

    def list_of(self, item: str) -> str:
        raise NotImplementedError

    def map_of(self, item: str) -> str:
        raise NotImplementedError

    def constant(self, value: str) -> str:
        raise NotImplementedError

    def reference(self, name: str) -> str:
        return name

    def type(self, schema: Schema) -> str:
        if target := schema.get("$ref"):
            return self.reference(target.removeprefix(REFERENCE))
        if "const" in schema:
            return self.constant(schema["const"])
        if "anyOf" in schema:
            return self.join.join(self.type(one) for one in schema["anyOf"])
        return self.join.join(self.of_kind(kind, schema) for kind in kinds(schema)) or self.any

    def of_kind(self, kind: str, schema: Schema) -> str:
        if kind == "array":
            return self.list_of(self.type(schema["items"]))
        if kind == "object":
            return self.map_of(self.type(schema.get("additionalProperties", {})))
        return self.plain[kind]


class Python(Language):
    any = "Any"
    plain = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
    #: The prefix of type names.
    prefix = ""

    def list_of(self, item: str) -> str:
        return f"list[{item}]"

    def map_of(self, item: str) -> str:
        return f"dict[str, {item}]"

    def constant(self, value: str) -> str:
        return f"Literal[{json.dumps(value)}]"

    def reference(self, name: str) -> str:
        return self.prefix + name

    def models(self, types: dict[str, Schema]) -> str:
        parts = [
            f'"""The bodies of sessions.\n\n{NOTE}\n"""\n\nfrom __future__ import annotations\n\n'
            "from typing import Any, Literal, NotRequired, TypedDict\n"
        ]
        for name, schema in types.items():
            if "oneOf" in schema:
                members = variants(name, schema)
                parts += [self.model(*member) for member in members]
                union = " |\n    ".join(member for member, _ in members)
                parts.append(f"#: {one_line(schema)}\n{name} = (\n    {union}\n)\n")
            else:
                parts.append(self.model(name, schema))
        text = "\n\n".join(parts)
        return text if "Any" in text.replace("import Any", "") else text.replace("import Any, ", "import ")

    def model(self, name: str, schema: Schema) -> str:
        fields = {}
        for field_name, shown in schema.get("properties", {}).items():
            kind = self.type(shown)
            fields[field_name] = (
                kind if field_name in schema.get("required", []) else f"NotRequired[{kind}]", shown
            )
        if any(keyword.iskeyword(one) for one in fields):
            # Such a field cannot be one of a class.
            inner = "".join(
                f"        #: {one_line(shown)}\n        {json.dumps(one)}: {kind},\n"
                for one, (kind, shown) in fields.items()
            )
            return f'#: {one_line(schema)}\n{name} = TypedDict(\n    {json.dumps(name)},\n    {{\n{inner}    }},\n)\n'
        lines = [f"class {name}(TypedDict):", *document(one_line(schema), 4)]
        for one, (kind, shown) in fields.items():
            lines += [""] if len(lines) == 2 else []
            lines += [f"    #: {one_line(shown)}"] if one_line(shown) else []
            lines.append(f"    {one}: {kind}")
        return "\n".join(lines) + "\n"

    def client(self, found: list[Operation]) -> str:
        self.prefix = "models."
        head = (
            f'"""The operations of sessions.\n\n{NOTE}\n"""\n\nfrom __future__ import annotations\n\n'
            "from . import models\nfrom .transport import Event, Stream, Transport, fill\n\n\n"
            'class Sessions(Transport):\n    """The sessions of a team."""\n\n'
        )
        # A web socket needs more than the standard library.
        return head + "\n".join(self.operation(one) for one in found if one.gives != "socket")

    def operation(self, one: Operation) -> str:
        path = [parameter.snake for parameter in one.placed("path")]
        positional = [f"{name}: str" for name in path]
        body = {"json": self.type(one.takes_schema), "bytes": "bytes"}.get(one.takes or "")
        if body:
            name = "content" if one.takes == "bytes" else "body"
            positional.append(f"{name}: {body}" if one.takes_required else f"{name}: {body} | None = None")
        asked = one.placed("query", "header")
        keywords = [
            f"{parameter.snake}: {self.type(parameter.schema)}" + ("" if parameter.required else " | None = None")
            for parameter in asked
        ]
        arguments = ["self", *positional, *(["*", *keywords] if keywords else [])]
        answer = self.type(one.gives_schema)
        returns = {
            "data": answer, "bytes": "bytes", "lines": f"Stream[{answer}]", "events": f"Stream[Event[{answer}]]",
        }[one.gives]
        filled = "".join(f", {name}={name}" for name in path)
        call = [json.dumps(one.method), f"fill({json.dumps(one.path)}{filled})" if path else json.dumps(one.path)]
        for place in ("query", "header"):
            if placed := one.placed(place):
                entries = ", ".join(f"{json.dumps(each.name)}: {each.snake}" for each in placed)
                call.append(f"{'headers' if place == 'header' else place}={{{entries}}}")
        if body:
            call.append(f"{name}={name}")
        before = {"data": f"data: {returns} = "}.get(one.gives, "return ")
        before = "" if returns == "None" else before
        lines = [broken(f"{before}self._{one.gives}(", call, ")", 8)]
        lines += ["return data"] if before.startswith("data") else []
        about = list(document(one.about, 8))
        body_lines = [f"        {line}" for line in lines]
        signature = "    " + broken(f"def {one.snake}(", arguments, f") -> {returns}:", 4)
        return "\n".join([signature, *about, *body_lines, ""])


class TypeScript(Language):
    any = "unknown"
    plain = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}

    def list_of(self, item: str) -> str:
        return f"Array<{item}>"

    def map_of(self, item: str) -> str:
        return f"Record<string, {item}>"

    def constant(self, value: str) -> str:
        return quoted(value)

    def models(self, types: dict[str, Schema]) -> str:
        parts = [f"/**\n * The bodies of sessions.\n *\n * {NOTE}\n */\n"]
        for name, schema in types.items():
            if "oneOf" in schema:
                members = variants(name, schema)
                parts += [self.model(*member) for member in members]
                union = "\n  | ".join(member for member, _ in members)
                parts.append(f"/** {one_line(schema)} */\nexport type {name} =\n  | {union}\n")
            else:
                parts.append(self.model(name, schema))
        return "\n".join(parts)

    def model(self, name: str, schema: Schema) -> str:
        lines = [f"/** {one_line(schema)} */"] if one_line(schema) else []
        lines.append(f"export interface {name} {{")
        for one, shown in schema.get("properties", {}).items():
            lines += [f"  /** {one_line(shown)} */"] if one_line(shown) else []
            optional = "" if one in schema.get("required", []) else "?"
            lines.append(f"  {one}{optional}: {self.type(shown)}")
        return "\n".join([*lines, "}"]) + "\n"

    def client(self, found: list[Operation]) -> str:
        types = sorted(
            name for name in {self.type(schema).removeprefix("Array<").removesuffix(">")
                              for one in found for schema in (one.takes_schema, one.gives_schema) if schema}
            if name[0].isupper()
        )
        names = "".join(f"  {name},\n" for name in types)
        return (
            f"/**\n * The operations of sessions.\n *\n * {NOTE}\n */\n\n"
            f"import type {{\n{names}}} from './models.ts'\n"
            "import { part, Transport } from './transport.ts'\n"
            "import type { CallOptions, Event } from './transport.ts'\n\n"
            "/** The sessions of a team. */\nexport class Sessions extends Transport {\n"
            + "\n".join(self.operation(one) for one in found)
            + "}\n"
        )

    def operation(self, one: Operation) -> str:
        arguments = [f"{parameter.camel}: string" for parameter in one.placed("path")]
        path = one.path
        for parameter in one.placed("path"):
            path = path.replace(f"{{{parameter.name}}}", f"${{part({parameter.camel})}}")
        path = f"`{path}`" if "$" in path else quoted(path)
        about = comment(one.about)
        if one.gives == "socket":
            signature = f"  {one.id}({', '.join(arguments)}): WebSocket {{"
            return "\n".join([*about, signature, f"    return this.socket({path})", "  }", ""])
        body = {"json": self.type(one.takes_schema), "bytes": "BodyInit"}.get(one.takes or "")
        if body:
            name = "content" if one.takes == "bytes" else "body"
            arguments.append(f"{name}: {body}" if one.takes_required else f"{name}: {body} = {{}}")
        asked = one.placed("query", "header")
        fields = "".join(
            f"; {each.camel}{'' if each.required else '?'}: {self.type(each.schema)}" for each in asked
        ).removeprefix("; ")
        needed = any(each.required for each in asked)
        options = f"CallOptions & {{ {fields} }}" if fields else "CallOptions"
        arguments.append(f"options: {options}" + ("" if needed else " = {}"))
        entries = ["signal: options.signal"]
        for place in ("query", "header"):
            if placed := one.placed(place):
                values = ", ".join(f"{quoted(each.name)}: options.{each.camel}" for each in placed)
                entries.append(f"{'headers' if place == 'header' else place}: {{ {values} }}")
        if body:
            entries.append(name)
        answer = self.type(one.gives_schema)
        answer = "void" if answer == "null" else answer
        returns, kind = {
            "data": (f"Promise<{answer}>", f"<{answer}>"), "bytes": ("Promise<Uint8Array>", ""),
            "lines": (f"AsyncGenerator<{answer}, void, undefined>", f"<{answer}>"),
            "events": (f"AsyncGenerator<Event<{answer}>, void, undefined>", f"<{answer}>"),
        }[one.gives]
        call = broken(f"this.{one.gives}{kind}({quoted(one.method)}, {path}, {{", entries, "})", 4, 2, " ")
        signature = "  " + broken(f"{one.id}(", arguments, f"): {returns} {{", 2, 2)
        return "\n".join([*about, signature, f"    return {call}", "  }", ""])


def broken(head: str, items: list[str], tail: str, indent: int, step: int = 4, gap: str = "") -> str:
    """A list in brackets: on one line, or with a line for each item."""
    whole = head + gap + ", ".join(items) + gap + tail
    if indent + len(whole) <= 100:
        return whole
    lines = "".join(f"\n{' ' * (indent + step)}{item}," for item in items)
    return f"{head}{lines}\n{' ' * indent}{tail}"


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def one_line(schema: Schema) -> str:
    return " ".join(schema.get("description", "").split())


def wrapped(text: str, width: int) -> list[str]:
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        lines += [""] if lines else []
        lines += textwrap.wrap(paragraph, width, break_long_words=False, break_on_hyphens=False)
    return lines


def document(text: str, indent: int) -> list[str]:
    """A docstring."""
    if not text:
        return [" " * indent + '"""No more is known of it."""']
    lines = wrapped(text, 100 - indent)
    if len(lines) == 1:
        return [" " * indent + f'"""{lines[0]}"""']
    lines = [f'"""{lines[0]}', *lines[1:], '"""']
    return [(" " * indent + line).rstrip() for line in lines]


def comment(text: str) -> list[str]:
    lines = wrapped(text, 100)
    if len(lines) == 1:
        return [f"  /** {lines[0]} */"]
    return ["  /**", *(f"   * {line}".rstrip() for line in lines), "   */"]


def files() -> dict[Path, str]:
    """The generated files."""
    shown = json.loads(DOCUMENT.read_text())
    found = operations(shown)
    types = used(found, shown["components"]["schemas"])
    python, typescript = CLIENTS / "python" / "shoal_sessions", CLIENTS / "typescript" / "src"
    return {
        python / "models.py": Python().models(types),
        python / "client.py": Python().client(found),
        typescript / "models.ts": TypeScript().models(types),
        typescript / "client.ts": TypeScript().client(found),
    }


def main() -> int:
    differing = [path for path, text in files().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in differing:
            print(f"{path.relative_to(ROOT)} is out of date: run scripts/clients.py", file=sys.stderr)
        return 1 if differing else 0
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
