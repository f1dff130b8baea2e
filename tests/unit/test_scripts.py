"""The scripts as text: headers that cannot drift, keys that are declared, guards before writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import changeover_shared
from changeover_shared._store.scripts import MAX_RECORDS, NAMES, parse_header, script

FOLDER = Path(changeover_shared.__file__).parent / "lua"
INCLUDES = tuple(sorted(path.stem for path in (FOLDER / "include").glob("*.lua")))
FLAGS = {"allow-oom", "no-writes"}
TYPES = {"HASH", "ZSET", "STREAM", "STRING"}

WRITES = re.compile(
    r"redis\.call\('(?!GET|HGET|HMGET|HGETALL|HEXISTS|HRANDFIELD|ZSCORE|ZCARD|ZRANGE|XRANGE"
    r"|XREVRANGE|EXISTS|TIME)"
    r"|\b(?:save|settle|settle_apart|event|place|drop_lease|put_input|put_wait|drop_wait"
    r"|grant|quarantine_session|tagged)\("
)
"""A command that writes, or a function that does."""
REFUSES = re.compile(
    r"return (?:reply\('(?!OK\b|ACCEPTED|MERGED|CANCELLED|DROPPED)|refuse\(|refused)"
)
KEY_FIELDS = re.compile(r"(?:s\.key|key|at|s\.at|each|EACH\[i\])\.(\w+)$")
"""How bodies and includes name a key that they were given."""


def code(text: str) -> str:
    """Lua without comments."""
    return re.sub(r"--[^\n]*", "", text)


def body(name: str) -> str:
    return code(script(name).body)


def names_in(text: str) -> set[str]:
    """Every word of the code, outside of strings."""
    return set(re.findall(r"[A-Za-z_]\w*", re.sub(r"'[^']*'", "''", text)))


def main_part(text: str) -> list[str]:
    """The lines that run in order: without the bodies of local functions."""
    return re.sub(r"^local function .*?^end$", "", text, flags=re.M | re.S).splitlines()


def test_every_file_is_a_script_with_a_name_and_every_name_a_file() -> None:
    assert {path.stem for path in FOLDER.glob("*.lua")} == set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


def test_every_include_is_used_and_exists() -> None:
    used = {name for one in NAMES for name in script(one).header.uses}
    assert used == set(INCLUDES)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_declared_is_used_and_nothing_else_is_read(name: str) -> None:
    header = script(name).header
    known = names_in(body(name))
    unused = {*header.keys, *header.args, *header.lists} - known
    assert unused == set()
    assert not re.search(r"\b(?:KEYS|ARGV)\b", body(name)), "the header binds them"
    assert ("EACH" in known) == bool(header.each)


@pytest.mark.parametrize("name", NAMES)
def test_what_every_session_brings_is_used(name: str) -> None:
    text = body(name) + "".join(code(include(used)) for used in script(name).header.uses)
    for key in script(name).header.each:
        assert re.search(rf"\.{key}\b", text), key


@pytest.mark.parametrize("name", NAMES)
def test_every_field_of_a_list_is_used(name: str) -> None:
    for fields in script(name).header.lists.values():
        for field in fields:
            assert re.search(rf"\.{field}\b", body(name)), field


@pytest.mark.parametrize("name", NAMES)
def test_no_variable_is_global(name: str) -> None:
    """A misspelt name would be nil, and Redis refuses to create one."""
    text = code(script(name).plain)
    bound = set(re.findall(r"\bfunction (\w+)", text))
    for found in re.findall(r"\blocal ([\w, ]+?)(?: =|\n)", text):
        bound |= {word.strip() for word in found.split(",")}
    for found in re.findall(r"\bfor ([\w, ]+?) (?:in|=)", text):
        bound |= {word.strip() for word in found.split(",")}
    for found in re.findall(r"function ?\w*\(([\w, .]*)\)", text):
        bound |= {word.strip() for word in found.split(",")}
    assigned = r"^ *(?! |local |for |if )([\w, ]+?) = .*[^,}]$"
    for target in re.findall(assigned, text, flags=re.M):
        assert {word.strip() for word in target.split(",")} <= bound, target


@pytest.mark.parametrize("name", NAMES)
def test_the_words_that_are_answered_are_the_words_that_are_declared(name: str) -> None:
    one = script(name)
    answered: set[str] = set()
    for text in (one.body, *(include(used) for used in one.header.uses)):
        answered |= set(re.findall(r"(?:reply|refuse)\('([A-Z_]+)'", code(text)))
        answered |= set(re.findall(r"\bword = '([A-Z_]+)'", code(text)))
    declared = set(one.header.replies)
    per_session = {"reap", "claim", "renew"}
    missing = answered - declared
    if name in per_session:
        prose = one.body.split("-- REPLIES")[1].split("-- USES")[0]
        missing = {word for word in missing if word not in prose}
    assert missing == set()
    unused = declared - answered - ({"OK"} if name == "append" else set())
    if "LATE" in unused and "not_after" not in one.header.args:
        unused.remove("LATE")
    assert unused == set()


@pytest.mark.parametrize("name", ["reap", "claim", "renew"])
def test_the_words_per_session_are_declared(name: str) -> None:
    prose = script(name).body.split("-- REPLIES")[1].split("-- USES")[0]
    declared = set(re.findall(r"\b[A-Z]{4,}\b|\bOK\b", prose))
    answered = set(re.findall(r"\{'([A-Z]+)'", body(name)))
    answered |= set(re.findall(r"word = '([A-Z]+)'", body(name)))
    answered |= set(re.findall(r"return '([A-Z]+)'", body(name)))
    assert declared == answered - {"AGAIN"} | {"OK"}


@pytest.mark.parametrize("name", NAMES)
def test_no_key_is_built_in_lua(name: str) -> None:
    """A cluster knows the keys of a call before it runs."""
    header = script(name).header
    given = {*header.keys, *header.args, "stream", "key"}
    for text in (body(name), *(code(include(used)) for used in header.uses)):
        for found in re.findall(r"redis\.call\('[A-Z]+',\s*([^,)]+)", text):
            key = found.strip()
            field = KEY_FIELDS.search(key)
            choice = re.fullmatch(r"suspect and at\.\w+ or at\.\w+", key)
            assert ".." not in key
            assert key in given or field or choice, key


@pytest.mark.parametrize("name", NAMES)
def test_all_guards_come_before_the_first_write(name: str) -> None:
    """Redis does not undo: what refuses stands above what writes."""
    lines = main_part(body(name))
    writes = [i for i, line in enumerate(lines) if WRITES.search(line)]
    refusals = [i for i, line in enumerate(lines) if REFUSES.search(line)]
    errors = [i for i, line in enumerate(lines) if "error_reply" in line]
    assert writes or "no-writes" in script(name).header.flags
    if writes:
        assert all(i < min(writes) for i in refusals + errors)


@pytest.mark.parametrize("name", NAMES)
def test_what_only_reads_says_so(name: str) -> None:
    assert bool(WRITES.search(body(name))) != ("no-writes" in script(name).header.flags)


def test_the_clock_is_read_once_in_every_script() -> None:
    """Hole 49: two readings in one script differ."""
    for name in NAMES:
        assert code(script(name).plain).count("redis.call('TIME')") == 1, name


@pytest.mark.parametrize(
    "name",
    [name for name in NAMES if name not in ("init", "raise_epoch", "renew", "permit", "limit")],
)
def test_the_fleet_is_guarded_first(name: str) -> None:
    """Hole 38."""
    first = next(
        line for line in body(name).splitlines() if "redis.call" in line or "guard" in line
    )
    assert "fleet_guard(meta, partitions, layout, replid" in first
    # A late claim still finds its own grants, so it is judged session by session.
    as_a_whole = "not_after" in script(name).header.args and name != "claim"
    assert as_a_whole == ("replid, not_after)" in first)


def test_numbers_never_become_text_by_concatenation() -> None:
    """`..` and `tostring` keep 14 digits."""
    for name in (*NAMES, *(f"include/{one}" for one in INCLUDES)):
        text = code((FOLDER / f"{name}.lua").read_text())
        assert "tostring" not in text
        assert not re.search(r"(?<!\.)\b(?:now|seq|n|rev) \.\.|\.\. (?:now|seq|n|rev)\b", text), (
            name
        )


def test_headers_declare_a_type_for_every_key_and_flags_that_servers_know() -> None:
    for name in NAMES:
        header = script(name).header
        assert set(header.flags) <= FLAGS
        for section in ("KEYS", "EACH"):
            for key in getattr(header, section.lower()):
                line = re.search(rf"^--.*\b{key} +([A-Z]+)", script(name).body, re.M)
                assert line and line[1] in TYPES, (name, key)


def test_a_header_is_read_section_by_section() -> None:
    header = parse_header(
        "-- Does something.\n--\n"
        "-- KEYS     one     HASH  first\n"
        "--          two     ZSET\n"
        "-- EACH     three   HASH\n"
        "-- ARGS     four    int   with words\n"
        "-- LIST     five    a b c   records\n"
        "-- SEALED   four    event\n"
        "--          five.b  item\n"
        "-- REPLIES  OK      value\n"
        "--          GONE\n"
        "-- USES     clock fleet\n"
        "-- FLAGS    allow-oom\n"
        "\n-- KEYS     not     HASH\n"
    )
    assert (header.keys, header.each, header.args) == (("one", "two"), ("three",), ("four",))
    assert dict(header.lists) == {"five": ("a", "b", "c")}
    assert dict(header.sealed) == {"four": "event", "five.b": "item"}
    assert header.replies == ("OK", "GONE")
    assert (header.uses, header.flags) == (("clock", "fleet"), ("allow-oom",))


def test_arguments_are_laid_out_as_the_header_says() -> None:
    keys = {name: f"k:{name}" for name in script("reap").header.keys}
    args = {name: f"a:{name}" for name in script("reap").header.args}
    each = [{name: f"{i}:{name}" for name in script("reap").header.each} for i in range(2)]
    count, flat = script("reap").arguments(
        keys, args, each=each, lists={"sessions": [("a", "r"), ("b", "r")]}
    )
    assert count == len(keys) + 8
    assert flat[: len(keys)] == list(keys.values())
    assert flat[len(keys) : count] == [key for one in each for key in one.values()]
    assert flat[count:] == [*args.values(), 2, "a", "r", "b", "r"]


def test_a_missing_name_is_an_error_and_not_an_empty_argument() -> None:
    one = script("evict")
    keys = dict.fromkeys(one.header.keys, "k")
    args = dict.fromkeys(one.header.args, "a")
    one.arguments(keys, args)
    with pytest.raises(KeyError, match="owners"):
        one.arguments({"meta": "k", "leases": "k"}, args)
    with pytest.raises(KeyError, match="layout"):
        one.arguments(keys, {"partitions": 1, "replid": ""})


def test_lists_have_a_limit_and_records_their_fields() -> None:
    """Hole 48."""
    one = script("evict")
    keys = dict.fromkeys(one.header.keys, "k")
    args = dict.fromkeys(one.header.args, "a")
    one.arguments(keys, args, lists={"held": [("a", "b")] * MAX_RECORDS})
    with pytest.raises(ValueError, match="evict: 8001 held in one call"):
        one.arguments(keys, args, lists={"held": [("a", "b")] * (MAX_RECORDS + 1)})
    with pytest.raises(ValueError, match=r"held has the fields \('id', 'token'\)"):
        one.arguments(keys, args, lists={"held": [("a",)]})


def test_a_script_is_loaded_once_and_named_by_its_content() -> None:
    assert script("submit") is script("submit")
    shas = {one.sha for one in map(script, NAMES)}
    assert len(shas) == len(NAMES)
    assert all(re.fullmatch("[0-9a-f]{40}", sha) for sha in shas)


def include(name: str) -> str:
    return (FOLDER / "include" / f"{name}.lua").read_text()
