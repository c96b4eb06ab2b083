#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""That the tree keeps the code rules, and that the rules can be broken.

For every rule of tidy.py: samples that it must refuse and samples that it must
let through, then the tree itself.
"""

import unittest

import build_files
import cpp_text
import junit
import tidy

HEAD = ("// SPDX-License-Identifier: Apache-2.0\n"
        "// Copyright (c) The trnccl Authors\n")
OPENING = HEAD + ("//\n// What it's for.\n//\n// Thread rule: none.\n"
                  "#pragma once\n")
BUILD = 'cc_library(name = "a", srcs = ["a.cc"], hdrs = ["a.h"])\n'
SETTINGS_ROW = 'Row r = {"TRNCCL_LANES"};\n'


def lines(count, line="  f();\n"):
    return line * count


def methods(count):
    return "".join("  virtual void M%d() = 0;\n" % i for i in range(count))


# rule: (path, text) pairs that it must refuse, one finding each.
REFUSED = {
    tidy.head: [
        ("ccl/a.cc", "#include <vector>\n"),
        ("ccl/a.cc", HEAD.replace("Apache-2.0", "MIT")),
        ("tests/a.py", "import os\n"),
        ("bin/a", "#!/usr/bin/env bash\nset -e\n"),
    ],
    tidy.header_opening: [
        ("ccl/a.h", HEAD + "#pragma once\n"),
        ("ccl/a.h", HEAD + "//\n// Short.\n#pragma once\n"),
        ("ccl/a.h", OPENING.replace("#pragma once\n", "")),
        ("ccl/a-inl.h", HEAD + "//\n// Short.\n"),
    ],
    tidy.columns: [
        ("ccl/a.cc", "// " + "x" * 78 + "\n"),
        ("bin/a", "# " + "x" * 79 + "\n"),
        ("ccl/BUILD", "# " + "x" * 79 + "\n"),
    ],
    tidy.file_length: [
        ("ccl/a.cc", lines(501)),
        ("ccl/a_test.cc", lines(801)),
        ("tests/a.py", lines(801, "x = 1\n")),
    ],
    tidy.function_length: [
        ("ccl/a.cc", "void F() {\n" + lines(59) + "}\n"),
        ("ccl/a.cc", "namespace a {\nint C::F(\n  int x) const\n{\n" +
         lines(57) + "}\n}\n"),
        ("ccl/a.h", "class C {\n public:\n  C() : a_{1}, b_(2) {\n" +
         lines(59) + "  }\n};\n"),
        ("ccl/a_test.cc", "TEST(A, B) {\n" + lines(59) + "}\n"),
        ("ccl/a.cc", "auto F() -> int {\n  if (x) {\n" + lines(57) +
         "  }\n}\n"),
        ("tests/a.py", "def f():\n" + lines(60, "  x = 1\n")),
    ],
    tidy.parameters: [
        ("ccl/a.h", "void F(int a, int b, int c, int d, int e, int f);\n"),
        ("ccl/a.h", "class C {\n public:\n  C(int a, int b, int c, int d,\n"
         "    std::map<int, int> e, int f);\n};\n"),
        ("ccl/a.cc", "template <class T, class U>\nstatic T F(int a, int b,"
         " int c, int d, int e, T f) {\n}\n"),
    ],
    tidy.bool_parameter: [
        ("ccl/a.h", "void F(int a, bool b);\n"),
        ("ccl/a.h", "class C {\n  void F(bool b = false) const;\n};\n"),
        ("ccl/a.h", "class C {\n  virtual void F(const bool& b) = 0;\n};\n"),
        ("ccl/a.cc", "namespace {\nint F(bool) { return 1; }\n}\n"),
    ],
    tidy.virtuals: [
        ("ccl/a.h", "class C {\n public:\n" + methods(11) + "};\n"),
    ],
    tidy.no_goto: [("ccl/a.cc", "void F() {\n  goto end;\n}\n")],
    tidy.no_throw: [
        ("ccl/a.cc", "void F() {\n  throw 1;\n}\n"),
        ("algorithms/a.cc", "void F() {\n  throw 1;\n}\n"),
        ("transports/shm/a.cc", "void F() {\n  throw 1;\n}\n"),
    ],
    tidy.no_conditional_code: [
        ("ccl/a.cc", "#if defined(__x86_64__)\n"),
        ("ccl/a.cc", "#ifndef NDEBUG\n"),
        ("ccl/kernels/a.cc", "#if HWY_ONCE\n#endif\n#ifdef __GNUC__\n"),
    ],
    tidy.no_absl_mutex: [("ccl/a.h", "absl::Mutex mutex_;\n")],
    tidy.no_getenv: [("ccl/a.cc", 'const char* x = getenv("X");\n')],
    tidy.no_thread: [
        ("transports/shm/a.cc", "std::thread t(F);\n"),
        ("ccl/a.h", "std::jthread t;\n"),
    ],
    tidy.words: [
        ("ccl/a.cc", "int channels = 1;\n"),
        ("ccl/BUILD", "# A channel.\n"),
        ("ccl/a.cc", "// TODO: more\n"),
        ("tests/a.py", "# FIXME\n"),
    ],
    tidy.machine_paths: [
        ("bin/a", "cd /work/tree\n"),
        ("README.md", "See /home/me/notes.\n"),
    ],
    tidy.commented_out_code: [
        ("ccl/a.cc", "// Release(link);\n"),
        ("ccl/a.cc", "// const int x = 3;\n"),
        ("ccl/a.cc", "// if (x > 3) {\n"),
        ("ccl/a.cc", "int x;  // }\n"),
        ("ccl/a.cc", "// return x;\n"),
        ("ccl/a.cc", "// #include <vector>\n"),
        ("tests/a.py", "# print(x)\n"),
        ("tests/a.py", "# x = 3\n"),
    ],
}

# rule: (path, text) pairs that it must let through.
ACCEPTED = {
    tidy.head: [
        ("ccl/a.cc", HEAD),
        ("ccl/BUILD", "# A package.\n"),
        ("bin/a", "#!/usr/bin/env bash\n" + HEAD.replace("//", "#")),
        (tidy.C_API, HEAD.replace("// S", "/* S").replace("// C", " * C")),
    ],
    tidy.header_opening: [("ccl/a.h", OPENING)],
    tidy.columns: [
        ("ccl/a.cc", "x" * 80 + "\n"),
        ("ccl/a.cc", "\u00b5" * 80 + "\n"),
        ("ccl/a.cc", "// https://example.com/" + "x" * 80 + "\n"),
    ],
    tidy.file_length: [
        ("ccl/a.cc", lines(500)),
        ("ccl/a_test.cc", lines(800)),
        ("README.md", lines(2000)),
        ("ccl/BUILD", lines(2000, "# x\n")),
    ],
    tidy.function_length: [
        ("ccl/a.cc", "void F() {\n" + lines(58) + "}\n"),
        ("ccl/a.cc", "constexpr Row kRows[] = {\n" + lines(99, "  {1},\n") +
         "};\n"),
        ("ccl/a.h", "class C {\n" + lines(99, "  int x() { return 1; }\n") +
         "};\n"),
        ("ccl/a.cc", 'const char* kText = R"(\nvoid F() {\n' + lines(99) +
         ')";\n'),
    ],
    tidy.parameters: [
        ("ccl/a.h", "void F(int a, int b, int c, int d, int e);\n"),
        ("ccl/a.h", "std::map<int, int> F(std::array<int, 4> a,"
         " std::function<void(int, int, int)> b);\n"),
        ("ccl/a.h", 'extern "C" {\nint f(int, int, int, int, int, int);\n}\n'),
        (tidy.C_API, "int f(int a, int b, int c, int d, int e, int f);\n"),
        ("ccl/a.cc", "Result trncclF(int a, int b, int c, int d, int e,"
         " int f) {\n}\n"),
        ("ccl/a.cc", "INSTANTIATE_SUITE(a, b, c, d, e, f);\n"),
        ("ccl/a.cc", "constexpr int kX = F(1, 2, 3, 4, 5, 6);\n"),
    ],
    tidy.bool_parameter: [
        ("ccl/a.h", "bool F(int a);\n"),
        ("ccl/a.h", "void F(bool* found);\n"),
        ("ccl/a.h", "void F(std::function<void(bool)> f);\n"),
        ("ccl/a.h", "class C {\n  void F(bool b) override;\n};\n"),
        ("ccl/a.cc", "void C::F(bool b) {\n}\n"),
        ("ccl/a.cc", "void F() {\n  auto f = [](bool b) { return b; };\n}\n"),
    ],
    tidy.virtuals: [
        ("ccl/a.h", "class C {\n  virtual ~C() = default;\n" + methods(10) +
         "};\nclass D {\n" + methods(10) + "};\n"),
    ],
    tidy.no_goto: [("ccl/a.cc", "// No goto here.\nconst char* x = \"goto\";\n"
                    )],
    tidy.no_throw: [
        ("bindings/torch/a.cc", "throw 1;\n"),
        ("ccl/a.cc", "// May throw.\n"),
    ],
    tidy.no_conditional_code: [
        ("ccl/a.cc", "#include <vector>\n#define X 1\n// #if\n"),
        ("ccl/kernels/a.cc", "#if HWY_ONCE\n#else\n#endif\n"),
        (tidy.C_API, "#ifdef __cplusplus\n"),
    ],
    tidy.no_absl_mutex: [("ccl/a.h", "// Not absl::Mutex.\nMutex mutex_;\n")],
    tidy.no_getenv: [
        (tidy.SETTINGS, 'getenv("X");\n'),
        ("bindings/mpi/a.cc", 'getenv("X");\n'),
    ],
    tidy.no_thread: [
        ("ccl/progress/thread.cc", "std::thread t(F);\n"),
        ("transports/conformance/a.cc", "std::thread t(F);\n"),
        ("ccl/a_test.cc", "std::thread t(F);\n"),
        ("ccl/a.cc", "std::this_thread::yield();\nstd::thread::id x;\n"),
    ],
    tidy.words: [
        ("bindings/torch/a.py", "torch.channels_last\n"),
        ("DESIGN.md", 'The word "channel" is not used.\n'),
    ],
    tidy.machine_paths: [
        ("bin/a", "ls $HOME/work/x /usr/bin ./home/x\n"),
        ("README.md", "https://example.com/home/x\n"),
    ],
    tidy.commented_out_code: [
        ("ccl/a.h", "// An example:\n//\n//   Release(link);\n"),
        ("ccl/a.cc", "// The first is free; the second costs a copy.\n"),
        ("ccl/a.cc", "// Waits (see Progress()); then goes on.\n"),
        ("ccl/a.cc", "// if n is odd, the last one stays\n"),
        ("ccl/a.cc", 'const char* x = "// F();";\n'),
        ("tests/a.py", "# Read by bin/test (once).\n"),
    ],
}

# rule: trees (path to text) that it must refuse, one finding each.
TREES_REFUSED = {
    tidy.in_build: [
        {"ccl/BUILD": BUILD, "ccl/a.h": "", "ccl/b.h": ""},
        {"ccl/BUILD": BUILD, "ccl/a.cc": "", "ccl/b.cc": ""},
        {"ccl/BUILD": BUILD, "ccl/base/a.h": ""},
    ],
    tidy.settings: [
        {tidy.SETTINGS: SETTINGS_ROW},
        {tidy.SETTINGS: SETTINGS_ROW, tidy.SETTINGS_DOC: "TRNCCL_LANES_X"},
        {"ccl/a.cc": 'F("TRNCCL_SECRET");\n'},
        {"bin/a": "export TRNCCL_SECRET=1\n"},
    ],
    tidy.clang_format: [
        {"ccl/a.cc": "int  x;\n"},
        {"ccl/a.h": "int x;\n", "ccl/b.h": "void F( int x );\n"},
    ],
}
TREES_ACCEPTED = {
    tidy.in_build: [{"ccl/BUILD": BUILD, "ccl/a.h": "", "ccl/a.cc": ""}],
    tidy.settings: [
        {tidy.SETTINGS: SETTINGS_ROW, tidy.SETTINGS_DOC: "`TRNCCL_LANES`",
         "ccl/a.cc": 'F("TRNCCL_LANES=2"); TRNCCL_CHECK(x);\n'},
    ],
    tidy.clang_format: [{"ccl/a.cc": "int x;\n"}],
}


def sample_tree(texts):
    targets = [t for path, text in texts.items() if tidy.is_build(path)
               for t in build_files.parse("ccl", text)]
    return tidy.Tree(texts, targets)


class Samples(unittest.TestCase):
    """Each rule refuses and accepts what it should."""

    def test_every_rule_has_samples_of_both_kinds(self):
        both = [REFUSED | TREES_REFUSED,
                ACCEPTED | TREES_ACCEPTED]
        for rule in tidy.RULES:
            for samples in both:
                self.assertTrue(samples.get(rule), rule.__name__)


class Reading(unittest.TestCase):
    """What cpp_text sees in C++."""

    def test_finds_functions_with_their_first_and_last_line(self):
        text = ("namespace a {\n\nclass C {\n public:\n  int x() const {\n"
                "    return x_;\n  }\n private:\n  int x_{0};\n};\n\n"
                "C::C(int x)\n    : x_{x},\n      y_(2) {\n  F([] { G(); });\n"
                "}\n}\n")
        found = [(s.first, s.last) for s in cpp_text.scopes(text)
                 if s.kind == "function"]
        self.assertEqual(found, [(5, 7), (12, 16)])

    def test_comments_and_strings_hide_braces(self):
        text = "void F() {  // {\n  G(\"{\", '{', R\"({)\");  /* { */\n}\n"
        self.assertEqual([(s.first, s.last) for s in cpp_text.scopes(text)],
                         [(1, 3)])

    def test_operators_are_functions(self):
        text = ("class C {\n  bool operator==(const C& c) const { return 1; }\n"
                "  void operator()(int a) { F(); }\n};\n")
        found = [s for s in cpp_text.scopes(text) if s.kind == "function"]
        self.assertEqual(len(found), 2)


class Tree(unittest.TestCase):
    """The tree keeps each rule."""

    @classmethod
    def setUpClass(cls):
        cls.tree = tidy.load(build_files.root())

    def test_is_seen_whole(self):
        for path in ("WORKSPACE", "ccl/base/types.h", "bin/setup",
                     "tests/tidy.py", ".ci/run"):
            self.assertIn(path, self.tree.texts)


def _add_cases():
    """A case for every rule's samples, and one for the rule and the tree."""
    def samples(rule):
        def case(self):
            for path, text in REFUSED.get(rule, []):
                found = tidy.check(tidy.Tree({path: text}, []), rule)
                self.assertEqual(len(found), 1, (path, text, found))
            for path, text in ACCEPTED.get(rule, []):
                found = tidy.check(tidy.Tree({path: text}, []), rule)
                self.assertEqual(found, [], (path, text))
            for texts in TREES_REFUSED.get(rule, []):
                found = tidy.check(sample_tree(texts), rule)
                self.assertEqual(len(found), 1, (texts, found))
            for texts in TREES_ACCEPTED.get(rule, []):
                found = tidy.check(sample_tree(texts), rule)
                self.assertEqual(found, [], texts)
        return case

    def tree(rule):
        def case(self):
            found = tidy.check(self.tree, rule)
            self.assertEqual(found, [], "\n" + "\n".join(found))
        return case

    for rule in tidy.RULES:
        setattr(Samples, "test_" + rule.__name__, samples(rule))
        setattr(Tree, "test_" + rule.__name__, tree(rule))


_add_cases()

if __name__ == "__main__":
    junit.main()
