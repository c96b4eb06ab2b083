# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Reads C++ text closely enough to find its functions and classes.

Not a parser: it knows comments, strings, braces and parentheses, and takes the
style of this tree (one declaration a statement, macros in capitals) for
granted. tests/tidy_test.py pins down what it must see.
"""

import collections
import re

# A function or class: where its head starts and its body ends (1-based lines;
# last is None for a declaration), and the head's text on one line.
Scope = collections.namedtuple("Scope", "kind first last head parent extern_c")

_TOKEN = re.compile(r"""
    (?P<raw>R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)")
  | (?P<line>//(?:\\\n|[^\n])*)
  | (?P<block>/\*.*?\*/)
  | (?P<string>"(?:\\.|[^"\\\n])*")
  | (?P<char>(?<![0-9a-zA-Z])'(?:\\.|[^'\\\n])+')
""", re.VERBOSE | re.DOTALL)


def _spaces(text):
    return re.sub(r"[^\n]", " ", text)


def blank(text, keep_strings=False):
    """Comments, strings and character literals made blank; lines stay."""
    def replace(match):
        found = match.group(0)
        if match.group("line") or match.group("block"):
            return _spaces(found)
        if keep_strings:
            return found
        if match.group("raw"):
            return '""' + _spaces(found)[2:]
        return found[0] + _spaces(found[1:-1]) + found[-1]
    return _TOKEN.sub(replace, text)


def comments(text):
    """Yields (line, text after the slashes) of every // comment."""
    for match in _TOKEN.finditer(text):
        if match.group("line"):
            yield text.count("\n", 0, match.start()) + 1, match.group(0)[2:]


def includes(text):
    """Yields (line, header) of every #include."""
    code = blank(text, keep_strings=True)
    for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^">]+)[">]',
                             code, re.MULTILINE):
        yield code.count("\n", 0, match.start()) + 1, match.group(1)


def _without_preprocessor(code):
    return re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", lambda m: _spaces(m.group(0)),
                  code, flags=re.MULTILINE)


def _balanced(text, start, pairs="()"):
    """Index after the bracket that closes the one at `start`."""
    depth = 0
    for index in range(start, len(text)):
        if text[index] == pairs[0]:
            depth += 1
        elif text[index] == pairs[1]:
            depth -= 1
            if depth == 0:
                return index + 1
    return len(text)


def _drop_template(head):
    while True:
        match = re.match(r"\s*template\s*<", head)
        if not match:
            return head.strip()
        head = head[_balanced(head, match.end() - 1, "<>"):]


def _tidy_head(head):
    """One line, without access labels, attributes and template<...>."""
    head = re.sub(r"\s+", " ", head)
    head = re.sub(r"\b(public|private|protected) ?:(?!:)", " ", head)
    head = re.sub(r"\[\[[^\]]*\]\]", " ", head)
    head = re.sub(r"\b(alignas|__attribute__|decltype|noexcept|explicit) ?"
                  r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", " ", head)
    head = re.sub(r"\boperator ?\( ?\)", "operator_call", head)
    head = re.sub(r"\boperator ?[^\w\s(]+", "operator_symbol", head)
    return _drop_template(re.sub(r" +", " ", head).strip())


def parameter_list(head):
    """(name, text between the parentheses) of a function's head, or None."""
    if re.match(r"(using|typedef|return|static_assert|friend class)\b", head):
        return None
    depth = 0
    for index, char in enumerate(head):
        if char == "<":
            depth += 1
        elif char == ">" and head[index - 1:index] != "-":
            depth -= 1
        elif char in "={" and depth == 0:
            return None
        elif char == "(" and depth == 0:
            name = re.search(r"([~\w:]+) ?$", head[:index])
            if not name or not head[:index].strip():
                return None
            end = _balanced(head, index)
            return name.group(1), head[index + 1:end - 1]
    return None


def split_parameters(text):
    """The parameters of a list, each stripped."""
    parts, depth, part = [], 0, ""
    for char in text:
        depth += (char in "(<[{") - (char in ")>]}")
        if char == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += char
    parts.append(part.strip())
    return [p for p in parts if p and p != "void"]


def _in_initializers(head):
    """True where a { after this head opens a member's initializer."""
    match = parameter_list(head)
    if not match:
        return False
    rest = head[head.index("(" + match[1] + ")") + len(match[1]) + 2:]
    return bool(re.match(r"[^:]*[^:]?:(?!:)", rest)) and \
        bool(re.search(r"[\w>]$", rest))


def _classify(head, kind):
    """What a { opens, from the text before it and the scope it stands in."""
    if kind in ("function", "block"):
        return "block"
    if re.match(r"(inline )?namespace\b", head) or \
            re.match(r'extern ?"[^"]*"$', head):
        return "namespace"
    if re.match(r"(?:typedef )?(class|struct|union|enum)\b[^()=]*$",
                re.sub(r"\([^()]*\)", "", head)) and \
            not re.search(r"\) ?(const)?$", head):
        return "enum" if head.startswith("enum") else "class"
    if parameter_list(head):
        return "member_init" if _in_initializers(head) else "function"
    return "block"


class _Reader:
    """Walks the braces of one file and keeps a stack of open scopes."""

    def __init__(self, code):
        self.code = code
        self.found = []
        self.stack = [("namespace", 0, "", False)]
        self.head_start = 0

    def line(self, index):
        return self.code.count("\n", 0, index) + 1

    def head(self, end):
        return _tidy_head(self.code[self.head_start:end])

    def first_line(self, end):
        text = self.code[self.head_start:end]
        text = re.sub(r"\b(public|private|protected)\s*:(?!:)",
                      lambda m: _spaces(m.group(0)), text)
        return self.line(self.head_start + len(text) - len(text.lstrip()))

    def open(self, index):
        kind, extern_c = self.stack[-1][0], self.stack[-1][3]
        head = self.head(index)
        opened = _classify(head, kind)
        if re.match(r'extern ?"', head):
            extern_c = True
        self.stack.append((opened, self.first_line(index), head, extern_c))
        if opened != "member_init":
            self.head_start = index + 1

    def close(self, index):
        if len(self.stack) == 1:
            return
        kind, first, head, extern_c = self.stack.pop()
        if kind in ("function", "class"):
            self.found.append(Scope(kind, first, self.line(index), head,
                                    self.stack[-1][0], extern_c))
        if kind != "member_init":
            self.head_start = index + 1

    def statement(self, index):
        kind, _, _, extern_c = self.stack[-1]
        if kind in ("namespace", "class"):
            head = self.head(index)
            if parameter_list(head):
                self.found.append(Scope(
                    "declaration", self.first_line(index), None, head, kind,
                    extern_c or head.startswith("extern \"")))
        if kind != "member_init":
            self.head_start = index + 1

    def read(self):
        parentheses = 0
        for index, char in enumerate(self.code):
            in_scope = self.stack[-1][0] in ("namespace", "class")
            if char in "()" and in_scope:
                parentheses = max(0, parentheses + (1 if char == "(" else -1))
            elif in_scope and parentheses:
                continue
            elif char == "{":
                self.open(index)
            elif char == "}":
                self.close(index)
            elif char == ";":
                self.statement(index)
        return self.found


def scopes(text):
    """Every function, class and function declaration, in closing order."""
    return _Reader(_without_preprocessor(blank(text))).read()
