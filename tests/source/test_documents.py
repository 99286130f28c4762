"""Reading YAML: what it means, where its mistakes are, and that hostile input costs little."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.api.meta import API_VERSION
from reconciler.report.problems import as_text
from reconciler.source import aliases
from reconciler.source.aliases import (
    MAX_LENGTH,
    MAX_NODES,
    AliasError,
    check_agreement,
    counted,
)
from reconciler.source.documents import (
    MAX_DOCUMENTS,
    count_documents,
    read_documents,
    read_foreign,
)
from reconciler.source.places import content_lines, field_path, locate
from reconciler.source.plain_place import plain_key, plain_places
from reconciler.source.tree import MAX_FILE_BYTES
from tests.support.fleets import load_texts, model, service

HEAD = f"apiVersion: {API_VERSION}\nkind: Model\n"
DEPTH = "nested deeper than 128 levels"
OTHER = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"


def read(text: str | bytes) -> dict[str, object]:
    """The content of the one document."""
    data = text.encode() if isinstance(text, str) else text
    reading = read_documents("a.yaml", data)
    assert not reading.problems, reading.problems
    return reading.documents[0].content


def problems(text: str | bytes) -> list[tuple[int, int, str, str, str]]:
    data = text.encode() if isinstance(text, str) else text
    found = read_documents("a.yaml", data).problems
    return [(p.line, p.column, p.field, p.rule, p.message) for p in found]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("1e3", 1000.0),
        ("0x10", 16),
        ("0o17", 15),
        ("012", "012"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ("2020-01-01", "2020-01-01"),
        ("~", None),
        ("", None),
        ("3.10", 3.1),
    ],
)
def test_plain_values_mean_what_yaml_1_2_says(written: str, meant: object) -> None:
    assert read(f"{HEAD}spec: {written}\n")["spec"] == meant


def test_a_merge_key_is_no_merge() -> None:
    assert read(f"{HEAD}base: &b {{x: 1}}\nspec:\n  <<: *b\n")["spec"] == {"<<": {"x": 1}}


@pytest.mark.parametrize("text", [f"\ufeff{HEAD}", HEAD.replace("\n", "\r\n"), f"---\n{HEAD}...\n"])
def test_byte_order_marks_crlf_and_markers_are_fine(text: str) -> None:
    assert read(text)["kind"] == "Model"


def test_documents_of_other_groups_are_counted() -> None:
    reading = read_documents("a.yaml", f"{OTHER}---\n{HEAD}---\n{OTHER}---\n# empty\n".encode())

    assert [d.index for d in reading.documents] == [1]
    assert reading.others == 2
    assert reading.problems == ()


@pytest.mark.parametrize(
    ("text", "line", "column", "field", "rule", "part"),
    [
        (f"{HEAD}spec:\n  a: 1\n  a: 2\n", 5, 3, "spec.a", "YamlSyntax", "first on line 4"),
        (f"{HEAD}kind: Model\n", 3, 1, "kind", "YamlSyntax", "is set twice"),
        (f"{HEAD}spec:\n\ta: 1", 4, 1, "", "YamlSyntax", "tab cannot indent; use spaces"),
        (
            f"{HEAD}spec: [1\nb: 2\n",
            4,
            2,
            "",
            "YamlSyntax",
            "while parsing a flow sequence at line 3 column 7; close the list with ]",
        ),
        (f"{HEAD}spec: a: b\n", 3, 8, "", "YamlSyntax", "quote a value"),
        (f"spec: a: b\n{HEAD}", 1, 8, "", "YamlSyntax", "quote a value"),
        (f"{HEAD}spec: *nobody\n", 3, 7, "", "YamlSyntax", "define it with &"),
        (
            f"{HEAD}spec: [&a x, *b]\n",
            3,
            14,
            "",
            "YamlSyntax",
            "unknown anchor b; define it with &",
        ),
        (f"a: &a x\n---\n{HEAD}spec: [*a, &b y, *b]\n", 5, 8, "", "YamlSyntax", "same document"),
        (f"{HEAD}1: x\n", 3, 1, "", "Schema", "the key 1 is not text; quote it"),
        (f"{HEAD}spec: {{true: 1}}\n", 3, 8, "spec", "Schema", "quote it"),
        (f"{HEAD}spec: .inf\n", 3, 1, "spec", "Schema", "not a usable number"),
        (f"{HEAD}spec: [1, .nan]\n", 3, 11, "spec[1]", "Schema", "not a usable number"),
        (f"{HEAD}spec: {'9' * 30}\n", 3, 7, "", "YamlSyntax", "64 bits"),
        (f"{HEAD}? [a, b]\n: 1\n", 1, 1, "", "YamlSyntax", "keys are text"),
        ("[" * 201, 1, 201, "", "FileUnreadable", DEPTH),
        ("][[]" + "[" * 200, 1, 204, "", "FileUnreadable", DEPTH),
        ("? " * 200, 1, 1, "", "FileUnreadable", DEPTH),
        (f"{HEAD}spec: \x00\n", 3, 7, "", "YamlSyntax", "control characters"),
        (
            "apiVersion: inference.llmkube.dev/v1\nkind: Model\n",
            1,
            1,
            "apiVersion",
            "UnknownKind",
            API_VERSION,
        ),
        (
            f"apiVersion: {API_VERSION}\nkind: model\n",
            2,
            1,
            "kind",
            "UnknownKind",
            'did you mean "Model"?',
        ),
        (f"apiVersion: {API_VERSION}\n", 1, 1, "", "UnknownKind", "kind is missing"),
        (f"apiVersion: {API_VERSION}\nkind: [x]\n", 2, 1, "kind", "UnknownKind", "write one of"),
    ],
)
def test_a_mistake_has_its_place(
    text: str, line: int, column: int, field: str, rule: str, part: str
) -> None:
    found = problems(text)

    assert len(found) == 1
    assert found[0][:2] == (line, column)
    assert found[0][3] == rule
    assert part in found[0][4]


def test_bytes_that_are_no_utf8_are_named_with_their_line() -> None:
    assert problems(b"\na: \xff\n") == [
        (2, 4, "", "FileUnreadable", "byte 0xff is not UTF-8 text; save the file as UTF-8")
    ]


def test_what_has_no_place_is_wrong_with_the_whole_file() -> None:
    assert problems(bomb(12, 2))[0][:2] == (1, 1)


def test_what_is_as_large_or_as_deep_as_is_allowed_is_read() -> None:
    assert problems("#" * MAX_FILE_BYTES) == problems("- " * 128) == []


def test_a_file_that_is_not_ours_is_read_or_refused_as_a_whole() -> None:
    assert read_foreign(b"a: 1\n---\nno\n") == [{"a": 1}, "no"]
    with pytest.raises(ValueError, match="keys are text"):
        read_foreign(b"? [a]\n")


def bomb(levels: int, width: int) -> str:
    first = f"l0: &l0 [{', '.join('x' * width)}]\n"
    rest = (f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * width)}]\n" for n in range(1, levels))
    return first + "".join(rest)


ALIASES = "its aliases stand for more than 50,000 values"
# Of each the cap that refuses it; without them some take minutes, and more memory than there is.
HOSTILE = {
    "alias bomb": (bomb(9, 9), ALIASES),
    "few lines, doubled": (bomb(12, 2), "its aliases stand for too many values"),
    "one long list, often": (
        f"a: &a [{'x, ' * 20_000}x]\nb: [{'*a, ' * 20_000}*a]\n",
        ALIASES,
    ),
    "one long text, often": (
        f"a: &a {'x' * 20_000}\nb: [{'*a, ' * 4_000}*a]\n",  # 80 MB
        ALIASES,
    ),
    "an alias of itself": ("a: &a [*a]\n", ALIASES),
    "an alias of itself by a name of before": ("b: &a x\na: &a [*a]\n", ALIASES),
    "flow nesting": ("[" * 500_000, DEPTH),
    "balanced flow nesting": ("[" * 20_000 + "]" * 20_000, DEPTH),
    "mapping nesting": ("{a: " * 20_000, DEPTH),
    "block nesting": ("- " * 400_000, DEPTH),
    "key nesting": ("? " * 400_000, DEPTH),
    "indented nesting": ("".join(" " * n + "a:\n" for n in range(1_400)), DEPTH),
    "anchors in nesting": ("".join(f"[&a{n} x," for n in range(50_000)), DEPTH),
    "documents": ("---\na: 1\n" * (MAX_DOCUMENTS + 1), "more than 1,000 documents"),
    "documents by another break": (
        "---\u2028a: 1\r" * (MAX_DOCUMENTS + 1),
        "more than 1,000 documents",
    ),
    "size": ("#" * MAX_FILE_BYTES, "larger than 1024 KiB"),
}


def test_as_many_documents_as_are_allowed_are_read() -> None:
    reading = read_documents("a.yaml", b"---\na: 1\n" * MAX_DOCUMENTS)

    assert (reading.others, reading.problems) == (MAX_DOCUMENTS, ())


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("", 1),
        ("a: 1\n---\nb: 2\n", 2),
        ("---\na: 1\n---\nb: 2\n", 3),
        ("a: b---c\n", 2),  # one is not looked at
        ("a: b---c---d\n", 1),
        ("---\n" * (MAX_DOCUMENTS + 1), MAX_DOCUMENTS),
    ],
)
def test_documents_are_counted_without_a_parser(text: str, most: int) -> None:
    assert count_documents(text.encode()) == most


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_at_once(name: str) -> None:
    text, why = HOSTILE[name]
    data = (HEAD + text if "documents" not in name else text).encode()

    reading = read_documents("a.yaml", data)

    (found,) = reading.problems
    assert reading.others == 0
    assert found.rule == "FileUnreadable"
    assert found.message.startswith(why)
    assert len(found.message) < 300


@pytest.mark.parametrize(
    "text",
    [
        f"a: &a [file:///x, {'x, ' * 20_000}x]\nb: [{'*a, ' * 2_500}\n",  # 5 GB of 70 KB
        # The counting parser looks on to the end of a line, and stumbles, before it says a word.
        f"- &s {'a' * 100_000}\n- [&b [{'*s,' * 150}*s],{'*b,' * 150}*b,\na:# b]\n",
    ],
)
def test_aliases_near_what_only_one_parser_takes_are_not_written_out(text: str) -> None:
    data = f"# inference.llmkube.dev/v1alpha1\n{text}".encode()

    (found,) = read_documents("a.yaml", data).problems

    assert found.rule == "YamlSyntax"
    assert "mend or quote this" in found.message


def test_what_only_looks_like_an_alias_is_read_as_it_is() -> None:
    text = f"{HEAD}spec: {{source: https://example.org/x.gguf}} # *that one\n"

    assert read(text)["spec"] == {"source": "https://example.org/x.gguf"}


def test_aliases_of_another_document_than_what_only_one_parser_takes_are_read() -> None:
    text = f"{HEAD}spec: {{source: https://example.org/x.gguf}}\n---\n{HEAD}spec: [&a x, *a]\n"

    reading = read_documents("a.yaml", text.encode())

    assert [d.content["spec"] for d in reading.documents][1:] == [["x", "x"]]
    assert reading.problems == ()


def test_aliases_count_in_each_document_for_itself() -> None:
    text = f"{HEAD}spec: [&a x, *a]\n---\n{HEAD}\n---\n{HEAD}spec: {{a: &a [y], b: *a}}\n"

    assert read_documents("a.yaml", text.encode()).problems == ()
    assert counted(text) == {0: 9, 2: 13}


@pytest.mark.parametrize(
    ("text", "nodes", "length"),
    [
        ("[&a xy, *a, z]", 4, 5),
        ("[&a [xyz], *a]", 5, 6),
        ("a: &a {b: xy}\nc: *a\n", 9, 8),
    ],
)
def test_aliases_stand_for_as_much_as_is_allowed_and_no_more(
    text: str, nodes: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for less_nodes, less_length in ((0, 0), (1, 0), (0, 1)):
        monkeypatch.setattr(aliases, "MAX_NODES", nodes - less_nodes)
        monkeypatch.setattr(aliases, "MAX_LENGTH", length - less_length)
        if less_nodes or less_length:
            with pytest.raises(AliasError):
                counted(text)
        else:
            assert counted(text) == {0: nodes}


@pytest.mark.parametrize(
    ("loaded", "agrees"), [([{"a": [1, {}]}], True), ([{"a": [1]}], False), ([], False)]
)
def test_documents_with_aliases_are_refused_where_two_parsers_disagree(
    loaded: list[object], agrees: bool
) -> None:
    places = []
    try:
        check_agreement("# a\na: [1, {}]\n", {0: 5}, loaded)
    except AliasError as refused:
        places.append(refused.place)

    assert places == ([] if agrees else [(2, 1)])


def test_a_few_aliases_are_fine_behind_much_else() -> None:
    much = f"much: [{'x, ' * (MAX_NODES // 2)}{'y' * (MAX_LENGTH // 2)}]\n"

    content = read(f"{HEAD}{much}metadata: &m {{name: x}}\nspec: *m\n")

    assert content["spec"] == {"name": "x"}


PIECES = [
    *("a", ":", " ", "\n", "-", "- ", "[", "]", "{", "}", ",", "&a ", "*a", "!t ", "|", ">", "'"),
    *('"', "#", "%", "---\n", "...\n", "\t", "? ", "\r\n", "\r", "\x85", "\u2028", "é", "1"),
    *(".inf", "~", HEAD, "  ", "\\", "\x00", "\ufeff", "<<: ", "@", "`"),
]
YAML_ISH = st.lists(st.sampled_from(PIECES), max_size=60)
WHOLE = [HEAD, OTHER, "# only\n", "", f"\n\n# c\n{HEAD}", "!!map\na: 1\n"]
MARKERS = ["---\n", "--- # c\n", "...\n---\n", "---\r\n"]


@given(st.binary(max_size=400))
@settings(deadline=None)
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    read_documents("a.yaml", data)
    read_documents("a.yaml", HEAD.encode() + data)


@given(YAML_ISH)
@settings(max_examples=400, deadline=None)
def test_no_text_crashes_the_reader_and_every_refusal_names_a_line(parts: list[str]) -> None:
    text = "".join(parts)
    for whole in (text, HEAD + text):
        lines = len(whole.splitlines()) + 1
        for problem in read_documents("a.yaml", whole.encode()).problems:
            assert 1 <= problem.line <= lines
            assert problem.column >= 1
            assert problem.message


@given(st.lists(st.sampled_from(WHOLE), max_size=6), st.sampled_from(MARKERS))
@settings(deadline=None)
def test_the_cheap_first_lines_are_the_parsers(parts: list[str], marker: str) -> None:
    text = "# head\n" + marker.join(parts)

    cheap, parsed = content_lines(text), locate(text)

    reading = read_documents("a.yaml", text.encode())
    for document in reading.documents:
        assert cheap[document.index] == parsed[document.index].find("").line


@given(YAML_ISH)
@settings(max_examples=400, deadline=None)
def test_the_cheap_first_lines_agree_for_whatever_is_yaml(parts: list[str]) -> None:
    text = "".join(parts)
    for whole in (text, HEAD + text):
        reading = read_documents("a.yaml", whole.encode())
        cheap, parsed = content_lines(whole), locate(whole)
        for document in reading.documents:
            assert cheap[document.index] == parsed[document.index].find("").line


def test_places_are_those_of_keys_and_items() -> None:
    text = f"# top\n{model()}---\n{service(models=[{'name': 'a'}])}"

    first, second = locate(text)

    assert first.find("") == (2, 1)
    assert first.find("spec.source") == (6, 3)
    assert second.find("spec.models[0].name") == (13, 13)


def test_what_is_missing_stands_where_its_holder_does() -> None:
    (places,) = locate("metadata:\n  name: x\nspec:\n  router: {resident: 1}\n")

    assert places.find("spec.modelRef") == (3, 1)
    assert places.find("spec.router.other.more") == (4, 3)
    assert places.find("status") == (1, 1)


def test_odd_keys_have_a_field_that_finds_them() -> None:
    field = field_path(["metadata", "labels", "flexinfer.ai/gpu.vendor"])

    (places,) = locate('metadata:\n  labels:\n    "flexinfer.ai/gpu.vendor": x\n')

    assert field == 'metadata.labels["flexinfer.ai/gpu.vendor"]'
    assert places.find(field) == (3, 5)


SPECS = [
    *(HEAD, "spec:\n  a: 1\n", "spec: {a: 1}\n", "x: |\n  spec:\n", "---\n", "spec : 1\n", "\n"),
    *(
        '"spec": 1\n',
        "# spec:\n",
        "x: 'a\n  spec:\n  b'\n",
        "specs: 1\n",
        "é: 1\n",
        "? spec\n: 1\n",
    ),
    *(
        "spec:\n",
        "spec: &x\n",
        "  a: 1\n",
        "  b:\n",
        "    a: 2\n",
        "  # a: 1\n",
        "y:\n",
        "  - a: 1\n",
    ),
    *(
        "    - a: 1\n",
        "      a: 2\n",
        "- a: 1\n",
        "  a: b\n    c\n",
        "  b: *x\n",
        "  a:\n",
        " a: 1\n",
    ),
]


@given(st.lists(st.sampled_from(SPECS), max_size=8))
@settings(deadline=None)
def test_a_plain_field_is_where_the_parser_finds_it(parts: list[str]) -> None:
    text = HEAD + "".join(parts)
    lines = content_lines(text)
    for document in read_documents("a.yaml", text.encode()).documents:
        places = locate(text)[document.index]

        assert plain_key(text, lines[document.index], "spec") in (None, places.find("spec"))
        assert "spec" in document.content or plain_key(text, lines[document.index], "spec") is None
        for field, place in plain_places(text, lines[document.index]).items():
            assert place == places.fields[field]


PLAIN = """\
  a: 1
  b: # why
    c: x y
    c:
      d: [a, 'b']
  e: {f: 1}
  l:
  - x
    - --temp
    - "0.5"
  - n: 1
    m: 2

# y
    - a: 1
      b: 2
  a/b: 'x'
  q: 'a # b'
   z
  t: a #b
  u: a:b
  a: *z
""".splitlines(keepends=True)


@given(st.lists(st.sampled_from(PLAIN), max_size=9))
@settings(deadline=None)
def test_each_field_of_plain_lines_is_where_the_parser_finds_it(lines: list[str]) -> None:
    text = f"{HEAD}spec:\n{''.join(lines)}"

    for document in read_documents("a.yaml", text.encode()).documents:
        places = locate(text)[document.index]
        plain = plain_places(text, 1)
        assert {field: places.fields.get(field) for field in plain} == plain


def test_arguments_of_a_plain_spec_need_no_parser() -> None:
    text = (
        f"{HEAD}spec:\n  # why\n  format: gguf\n  at: {{nodes: [a]}}\n"
        '  extraArgs:\n    - --temp\n    - "0.5"\n  models:\n  - name: x\n    contextSize: 1\n'
    )

    plain = plain_places(text, 1)

    assert plain["spec.extraArgs[1]"] == (9, 7)
    assert plain["spec.models[0].contextSize"] == (12, 5)
    assert plain["spec.format"] == (5, 3)
    assert "spec.at.nodes" not in plain


def test_what_the_second_parser_does_not_take_still_has_a_line() -> None:
    text = f"{model()}---\n{HEAD}metadata: {{name:# a}}\nspec: {{}}\n---\n{service()}"

    first, second, third = locate(text)

    assert first.find("spec.source") == (5, 3)
    assert second.find("spec.source") == (10, 1)
    assert third.find("spec.modelRef") == (16, 3)
    (of_url,) = locate(f"{HEAD}spec: {{source: https://models.test/a.gguf, sha: x}}\n")
    assert of_url.find("spec.sha") == (3, 44)


@pytest.mark.parametrize(
    "text",
    [
        "{key}: 1\n",
        "{key}: 1\n{key}: 1\n",
        "? {key}{key}\n: 1\n",
        "metadata: {{labels: {{{key}: 1}}}}\n",
    ],
)
def test_a_long_key_is_shown_shortened(text: str) -> None:
    loaded = load_texts(HEAD + text.format(key="k" * 1_000))

    shown = [as_text(loaded.problems, loaded.counts), *map(str, loaded.problems)]

    assert all(line.count("k") < 300 for said in shown for line in said.splitlines())
    assert "kkk" in shown[0]


def test_an_error_at_the_end_of_the_file_is_on_its_last_line() -> None:
    assert problems(f"{HEAD}metadata: {{name: \n\n\n")[0][:2] == (3, 17)
