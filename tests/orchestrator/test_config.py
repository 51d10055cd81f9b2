"""Configurations: what each table means, and what is said about each thing that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from furcate.dialects import DIALECTS
from furcate.orchestrator._config import Resources, check_resources, find_faults, load_config
from furcate.primitives._contract import Contract
from furcate.primitives._errors import ConfigError
from furcate.primitives._json import Json
from furcate.primitives._message import CacheHint
from furcate.primitives._resources import Backend, MessageTemplate, Profile, Prompt, RetryPolicy, TimeLimits
from furcate.primitives._settings import Settings, Tool
from furcate.primitives._wire import ChatSwitches

BACKEND = """
[backends.lab]
dialect = "openai-chat"
base_url = "http://127.0.0.1:8080/v1/"
"""
PROFILE = """
[profiles.quick]
backend = "lab"
model = "m"
"""
EMBEDDED = """
[backends.home]
kind = "embedded"
[profiles.tiny]
backend = "home"
"""
FULL = """
[backends.lab]
dialect = "openai-chat"
base_url = "https://lab.example/v1/"
api_key_env = "LAB_KEY"
provider = "team-a"
capacity = 32
adaptive = false
requests_per_minute = 1000
tokens_per_minute = 400000
extra_headers = { x-team = "a" }
connect_s = 2
first_event_s = 60.5
idle_s = inf
total_s = 600
attempts = 5
first_backoff_s = 0.1
max_backoff_s = 5
resumes = 2
retry_for_s = inf
unknown_content = "carry"
replay_item_ids = true
max_result_bytes = 100000
max_tokens_field = "max_completion_tokens"
stream_usage = false
system_role = "developer"
structured_output = "json_object"
function_tools = true

[tools.look_up]
description = "Looks a word up."
parameters = { type = "object", properties = { word = { type = "string" } }, required = ["word"] }

[profiles.careful]
backend = "lab"
model = "m-large"
max_output_tokens = 2000
temperature = 0
top_p = 0.9
seed = 7
stop = "END"
reasoning_effort = "high"
extra_body = { top_k = 5 }
tools = ["look_up"]
server_tools = ["web_search"]
tool_choice = "auto"
repeat_safe = true
stream = false

[prompts.shorten]
profile = "careful"
session = "job-{{ id }}"
messages = [
    { role = "system", file = "parts/system.txt", cache = true },
    { role = "user", template = "Say {{ inputs.text }} in {{ words }} words.", cache = 300 },
]
contract = { schema = "answer.schema.json", repairs = 2, name = "short" }
inputs = { text = "in/text.txt" }
tool_choice = "look_up"

[prompts.list]
messages = [{ role = "user", template = "List {{ inputs.text }}." }]
contract = { schema = { type = "array", items = { type = "string" } } }
inputs = ["text"]
tools = ["look_up"]
"""
SCHEMA: dict[str, Json] = {"type": "object", "properties": {"text": {"type": "string"}}}


def write(folder: Path, content: str) -> Path:
    path = folder / "furcate.toml"
    path.write_text(content, encoding="utf-8")
    return path


def said(folder: Path, content: str) -> list[str]:
    """Give what is wrong with a file, without the file's name at the beginning."""
    path = write(folder, content)
    return [str(fault).removeprefix(f"{path}: ") for fault in find_faults(path)]


def full(folder: Path) -> Resources:
    (folder / "parts").mkdir()
    (folder / "parts" / "system.txt").write_text("Be short.\n", encoding="utf-8")
    (folder / "answer.schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    return load_config(write(folder, FULL))


def test_every_key_is_read(tmp_path: Path) -> None:
    """Each key of each table becomes what it says; paths are relative to the file."""
    resources = full(tmp_path)
    tool = Tool(
        "look_up",
        "Looks a word up.",
        {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    )
    assert dict(resources.backends) == {
        "lab": Backend(
            "lab",
            base_url="https://lab.example/v1",
            api_key_env="LAB_KEY",
            provider="team-a",
            capacity=32,
            adaptive=False,
            requests_per_minute=1000,
            tokens_per_minute=400000,
            extra_headers={"x-team": "a"},
            limits=TimeLimits(connect_s=2, first_event_s=60.5, idle_s=None, total_s=600),
            retry=RetryPolicy(attempts=5, first_backoff_s=0.1, max_backoff_s=5, resumes=2, retry_for_s=None),
            unknown_content="carry",
            replay_item_ids=True,
            max_result_bytes=100000,
            switches=ChatSwitches(
                max_tokens_field="max_completion_tokens",
                stream_usage=False,
                system_role="developer",
                structured_output="json_object",
            ),
        )
    }
    assert dict(resources.profiles) == {
        "careful": Profile(
            "careful",
            "lab",
            "m-large",
            settings=Settings(
                max_output_tokens=2000,
                temperature=0,
                top_p=0.9,
                seed=7,
                stop="END",
                reasoning_effort="high",
                extra_body={"top_k": 5},
            ),
            tools=(tool,),
            server_tools=("web_search",),
            tool_choice="auto",
            repeat_safe=True,
            stream=False,
        )
    }
    assert resources.prompts["shorten"] == Prompt(
        "shorten",
        (
            MessageTemplate("system", "Be short.\n", CacheHint()),
            MessageTemplate("user", "Say {{ inputs.text }} in {{ words }} words.", CacheHint(300)),
        ),
        profile="careful",
        contract=Contract(SCHEMA, 2, name="short"),
        session="job-{{ id }}",
        inputs={"text": tmp_path / "in" / "text.txt"},
        tool_choice="look_up",
    )
    assert resources.prompts["list"].contract == Contract({"type": "array", "items": {"type": "string"}})
    assert resources.prompts["list"].inputs == (("text", None),)
    assert resources.prompts["list"].tools == (tool,)
    assert resources.where == str(tmp_path / "furcate.toml")
    assert resources.warnings == ()


def test_defaults_are_those_of_the_values(tmp_path: Path) -> None:
    """What a table leaves out is as if the value had been made in Python."""
    resources = load_config(write(tmp_path, BACKEND + PROFILE))
    assert resources.backends["lab"] == Backend("lab", base_url="http://127.0.0.1:8080/v1")
    assert resources.profiles["quick"] == Profile("quick", "lab", "m")


def test_an_embedded_backend_needs_nothing(tmp_path: Path) -> None:
    """The embedded backend has one place and no tools, and its profile need not name the model."""
    resources = load_config(write(tmp_path, EMBEDDED))
    assert resources.backends["home"] == Backend(
        "home", kind="embedded", capacity=1, switches=ChatSwitches(function_tools=False)
    )
    assert resources.profiles["tiny"].model == "embedded"


def test_a_bom_and_windows_line_ends_do_not_matter(tmp_path: Path) -> None:
    """Files as Windows editors write them are read."""
    path = tmp_path / "furcate.toml"
    path.write_bytes(b"\xef\xbb\xbf" + BACKEND.replace("\n", "\r\n").encode())
    assert list(load_config(path).backends) == ["lab"]


def test_resources_cannot_be_changed(tmp_path: Path) -> None:
    """What was checked stays as it was checked."""
    resources = load_config(write(tmp_path, BACKEND))
    with pytest.raises(TypeError):
        resources.backends["x"] = resources.backends["lab"]  # type: ignore[index]


def test_a_key_in_the_file_is_taken_with_a_warning(tmp_path: Path) -> None:
    """A key in the file works; the warning names the variable to use instead, and neither shows the key."""
    path = write(tmp_path, BACKEND.replace("[backends.lab]", '[backends.lab-2]\napi_key = "sk-very-secret"'))
    resources = load_config(path)
    assert resources.backends["lab-2"].api_key == "sk-very-secret"
    [warning] = resources.warnings
    assert f"{path}: [backends.lab-2] api_key: " in warning
    assert 'api_key_env = "LAB_2_API_KEY"' in warning
    assert "sk-very-secret" not in warning + repr(resources)


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("", "there is no backend; add a table such as [backends.NAME]"),
        ("a = ", "no TOML: Invalid value (at end of document); mend the file there"),
        ("x = 1\nx = = 2\n", "no TOML: Invalid value (at line 2, column 5); mend the file there"),
        ("backends = 5", "backends: found a whole number; give tables such as [backends.NAME]"),
        ("[backends]", "backends: there is no backend; give at least one"),
        ("[backends]\nlab = 5", "[backends] lab: found a whole number; give a table such as [backends.lab]"),
    ],
)
def test_what_is_no_configuration_at_all(tmp_path: Path, content: str, wanted: str) -> None:
    """A file that is empty, no TOML, or shaped otherwise says what belongs there."""
    assert said(tmp_path, content) == [wanted]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a directory and a file in another encoding each give one sentence with the name."""
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"# caf\xe9")
    for path, reason in (
        (tmp_path / "gone.toml", "cannot be read: No such file or directory; name a file that is there"),
        (tmp_path, "cannot be read: Is a directory; name a file that is there"),
        (latin, "is no UTF-8 text (byte 5); convert it to UTF-8"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        assert str(caught.value) == f"{path}: {reason}"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("capasity = 3", "capasity: unknown key; did you mean 'capacity'? (known keys: kind, "),
        ('adaptive = "yes"', "adaptive: found a text; give true or false, without quotes"),
        ("requests_per_minute = 0", "requests_per_minute: 0 is too small; give 1 or more"),
        ("tokens_per_minute = 0.5", "tokens_per_minute: found a number with a fraction; give a whole number"),
        ("retry_for_s = 0", "retry_for_s: 0 is out of bounds; give more than 0 seconds"),
        ('capacity = "3"', "capacity: found a text; give a whole number"),
        ("capacity = true", "capacity: found true or false; give a whole number"),
        ("capacity = 0", "capacity: 0 is too small; give 1 or more"),
        ("idle_s = 0", "idle_s: 0 is out of bounds; give more than 0 seconds"),
        ('idle_s = "5s"', "idle_s: found a text; give seconds as a number, without quotes"),
        ("first_backoff_s = inf", "first_backoff_s: inf is out of bounds; give more than 0 seconds"),
        ("resumes = -1", "resumes: -1 is too small; give 0 or more"),
        ('unknown_content = "keep"', "unknown_content: 'keep' is not possible here; possible: fail, carry"),
        ("replay_item_ids = 1", "replay_item_ids: found a whole number; give true or false, without quotes"),
        ("max_result_bytes = 0", "max_result_bytes: 0 is too small; give 1 or more"),
        ("attempts = 1.5", "attempts: found a number with a fraction; give a whole number"),
        ('stream_usage = "no"', "stream_usage: found a text; give true or false, without quotes"),
        ('system_role = "sistem"', "system_role: 'sistem' is not possible here; did you mean 'system'? (possible: "),
        ('kind = "local"', "kind: 'local' is not possible here; possible: remote, embedded"),
        ("provider = 5", "provider: found a whole number; give a text in quotes"),
        ('provider = " "', "provider: empty; give a text, or leave the key out"),
        ("provider = 1979-05-27", "provider: found a date or time; give a text in quotes"),
        ("extra_headers = { a = 5 }", "extra_headers: 'a': found a whole number; give a text in quotes"),
        ('extra_headers = { "a b" = "x" }', "extra_headers: 'a b' is no header name; use letters, digits and hyphens"),
        ('extra_headers = { a = "x\\ny" }', "extra_headers: the value of 'a' has spaces around it or holds more"),
        ('api_key = "a\\nb"', "api_key: empty, or holds more than printable ASCII; give the key as the provider"),
        ('api_key_env = "A=B"', "api_key_env: no name of an environment variable; name the variable that"),
    ],
)
def test_what_is_wrong_with_a_backend(tmp_path: Path, line: str, wanted: str) -> None:
    """Each fault names the table, the key, what is wrong and what would be right."""
    [fault] = said(tmp_path, BACKEND + line)
    assert fault.startswith(f"[backends.lab] {wanted}")


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("127.0.0.1:8080", "the URL begins with neither http:// nor https://"),
        ("ftp://host/v1", "the URL begins with neither http:// nor https://"),
        ("http:///v1", "the URL names no host, or holds white space"),
        ("http://host/v1?key=abc", "the URL has a query or a fragment, to which no path can be appended"),
        ("http://me:abc@host/v1", "the URL holds a user name or password; credentials go to api_key_env"),
        ("http://host:99999/v1", "no URL: its host or port cannot be read"),
    ],
)
def test_what_is_wrong_with_an_address(tmp_path: Path, url: str, wanted: str) -> None:
    """An address must be one to which a path can be appended; it is not shown, as it may hold a key."""
    [fault] = said(tmp_path, f'[backends.lab]\nbase_url = "{url}"')
    assert fault == f'[backends.lab] base_url: {wanted}; give an address such as "https://api.example.com/v1"'
    assert "abc" not in fault


def test_a_dialect_that_is_not_there(tmp_path: Path) -> None:
    """An unknown dialect is told with the known ones."""
    assert said(tmp_path, '[backends.x]\ndialect = "openai-chats"') == [
        "[backends.x] dialect: no dialect 'openai-chats'; did you mean 'openai-chat'? "
        f"(dialects: {', '.join(sorted(DIALECTS))})"
    ]
    path = write(tmp_path, '[backends.x]\ndialect = "other"')
    assert load_config(path, dialects=["other"]).backends["x"].dialect == "other"


def test_an_empty_backend_table_goes_nowhere(tmp_path: Path) -> None:
    """A table that says neither kind nor address is a mistake, and no reason to call somebody's default address."""
    assert said(tmp_path, "[backends.x]\ncapacity = 2") == [
        '[backends.x]: it is not said where this backend is; give dialect and base_url, or kind = "embedded"'
    ]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ('base_url = "http://x"', "base_url: an embedded backend takes none"),
        ('api_key = "x"', "api_key: an embedded backend takes none"),
        ('dialect = "openai-chat"', "dialect: an embedded backend takes none"),
        ("function_tools = true", "function_tools: an embedded backend takes none"),
        ("capacity = 4", "capacity: 4 is too large for an embedded backend: its server has one slot"),
        ("capacity = 8", "capacity: 8 is too large for an embedded backend: its server has one slot"),
    ],
)
def test_what_an_embedded_backend_does_not_take(tmp_path: Path, line: str, wanted: str) -> None:
    """What has no meaning for the embedded model is refused with the reason."""
    [fault] = said(tmp_path, f'[backends.home]\nkind = "embedded"\n{line}')
    assert fault.startswith(f"[backends.home] {wanted}")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("top_p = 1.5", "top_p: 1.5 is out of bounds; give a number from 0 to 1"),
        ("temperature = nan", "temperature: nan is out of bounds; give 0 or more"),
        ("max_output_tokens = 0", "max_output_tokens: 0 is too small; give 1 or more"),
        ("stop = [5]", "stop: found a list; give a text in quotes, or a list of such"),
        ("extra_body = { a = 1979-05-27 }", "extra_body: no JSON: $.a is of type date; use texts, finite numbers"),
        ('tools = ["look"]', "tools: no tool named 'look'; tools: none"),
        ('tools = "look"', "tools: found a text; give a list of texts in quotes"),
        ("tools = [1]", "tools: item 1: found a whole number; give a text in quotes"),
        ('tool_choice = "look"', "tool_choice: 'look' is not possible here; possible: auto, none, required"),
    ],
)
def test_what_is_wrong_with_a_profile(tmp_path: Path, line: str, wanted: str) -> None:
    """Settings out of bounds, unknown tools and keys that are not there yet are named."""
    [fault] = said(tmp_path, BACKEND + PROFILE + line)
    assert fault.startswith(f"[profiles.quick] {wanted}")


def test_a_profile_needs_a_backend_and_a_model(tmp_path: Path) -> None:
    """The required keys of a profile are named, and a backend that is not there with those that are."""
    assert said(tmp_path, BACKEND + "[profiles.a]\nmodel = 'm'\n[profiles.b]\nbackend = 'lap'\nmodel = 'm'") == [
        "[profiles.a] backend: missing; this key is required",
        "[profiles.b] backend: no backend named 'lap'; did you mean 'lab'? (backends: lab)",
    ]
    assert said(tmp_path, BACKEND + "[profiles.a]\nbackend = 'lab'") == [
        "[profiles.a] model: missing; name the model as the backend calls it"
    ]


TOOL = """
[tools.look_up]
description = ""
"""


def test_tools_of_an_embedded_model_are_refused(tmp_path: Path) -> None:
    """Neither a profile nor a prompt may offer tools that the embedded model would not see."""
    prompt = """
[prompts.ask]
profile = "tiny"
messages = [{ role = "user", template = "x" }]
tools = ["look_up"]
"""
    [on_profile] = said(tmp_path, EMBEDDED + 'tools = ["look_up"]' + TOOL)
    assert on_profile.startswith(
        "[profiles.tiny] tools: backend 'home' is embedded: the embedded model's chat template"
    )
    [on_prompt] = said(tmp_path, EMBEDDED + TOOL + prompt)
    assert on_prompt.startswith("[prompts.ask] tools: its profile's backend 'home' is embedded: the embedded model's")


def test_what_is_wrong_with_a_tool(tmp_path: Path) -> None:
    """A tool's name must fit the wire, its parameters must be a JSON Schema, and it is offered once."""
    tools = '[tools."a b"]\n[tools.c]\nparameters = { type = "objekt" }\n[tools.d]\n'
    found = said(tmp_path, tools + BACKEND + PROFILE + 'tools = ["d", "d"]')
    assert found[0] == "[tools.\"a b\"]: 'a b' is no tool name; use 1 to 64 letters, digits, _ and -"
    assert found[1].startswith("[tools.c] parameters: no JSON Schema: $.type: ")
    assert found[2:] == ["[profiles.quick] tools: 'd' is there twice; name each tool once"]


USER = 'messages = [{ role = "user", template = "x" }]\n'


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("", "messages: missing; this key is required"),
        ("messages = []", 'messages: found an empty list; give a list such as [{ role = "user", '),
        ('messages = "x"', 'messages: found a text; give a list such as [{ role = "user", '),
        ("messages = [5]", "messages[0]: found a whole number; give a table such as { role"),
        ('messages = [{ role = "user" }]', "messages[0]: a message has either template or file; give one of the two"),
        ('messages = [{ template = "x" }]', "messages[0].role: missing; this key is required"),
        ('messages = [{ role = "usr", template = "x" }]', "messages[0].role: 'usr' is not possible here; did you mean"),
        ('messages = [{ role = "tool", template = "x" }]', "messages[0].role: 'tool' is not possible here; possible: "),
        ('messages = [{ role = "user", text = "x", template = "x" }]', "messages[0].text: unknown key; "),
        ('messages = [{ role = "user", template = "a\\n{{ x" }]', "messages[0].template: line 2: unexpected end of "),
        ('messages = [{ role = "user", template = "x", cache = 0 }]', "messages[0].cache: found a whole number; give "),
        ('messages = [{ role = "user", file = "broken.txt" }]', "messages[0].file: template "),
        (USER + 'session = "{% if %}"', "session: line 1: unexpected end of block"),
        (USER + 'profile = "quik"', "profile: no profile named 'quik'; did you mean 'quick'? (profiles: quick)"),
        (USER + "inputs = { a = 5 }", "inputs: 'a': found a whole number; give a text in quotes"),
        (USER + 'inputs = ["a b"]', "inputs: 'a b' cannot be written as inputs.<name>; use letters, digits and _"),
        (USER + "contract = {}", "contract.schema: missing; this key is required"),
        (USER + 'contract = "x"', "contract: found a text; give a table"),
        (USER + "contract = { schema = 5 }", "contract.schema: found a whole number; give a table"),
        (USER + 'contract = { schema = "broken.txt" }', "contract.schema: schema file "),
        (USER + 'contract = { schema = "gone.json" }', "contract.schema: schema file "),
        (USER + "contract = { schema = {}, repairs = -1 }", "contract.repairs: -1 is too small; give 0 or more"),
        (USER + "contract = { schema = {}, repeats = 1 }", "contract.repeats: unknown key; did you mean 'repairs'?"),
        (USER + 'contract = { schema = {}, name = "a b" }', "contract.name: 'a b' is no name; use 1 to 64 letters"),
        (
            USER + 'contract = { schema = { type = "objekt" } }',
            "contract.schema: contract 'answer': no JSON Schema: $.type: ",
        ),
        (
            USER + 'contract = { schema = { "$ref" = "http://x.example/s" } }',
            "contract.schema: contract 'answer': the schema refers to 'http://x.example/s', which is not followed",
        ),
    ],
)
def test_what_is_wrong_with_a_prompt(tmp_path: Path, body: str, wanted: str) -> None:
    """Messages, templates, contract, inputs and references are checked before any request."""
    (tmp_path / "broken.txt").write_text("{{ x", encoding="utf-8")
    [fault] = said(tmp_path, BACKEND + PROFILE + "[prompts.ask]\n" + body)
    assert fault.startswith(f"[prompts.ask] {wanted}")


def test_files_that_are_named_but_not_there(tmp_path: Path) -> None:
    """A template file and a schema file that are gone are named with their whole path."""
    body = 'messages = [{ role = "user", file = "gone.txt" }]\ncontract = { schema = "gone.json" }'
    assert said(tmp_path, BACKEND + "[prompts.ask]\n" + body) == [
        f"[prompts.ask] messages[0].file: {tmp_path}/gone.txt cannot be read: No such file or directory; "
        "name a file that is there",
        f"[prompts.ask] contract.schema: schema file {tmp_path}/gone.json: No such file or directory; "
        "give the path of a JSON file that holds a JSON Schema",
    ]


def test_input_files_need_not_be_there_yet(tmp_path: Path) -> None:
    """Input files are read when a prompt is rendered, so a configuration without them is whole."""
    content = BACKEND + '[prompts.ask]\nmessages = [{ role = "user", template = "x" }]\ninputs = { a = "gone.txt" }'
    assert load_config(write(tmp_path, content)).prompts["ask"].inputs == (("a", tmp_path / "gone.txt"),)


def test_everything_is_found_at_once_and_the_first_is_raised(tmp_path: Path) -> None:
    """The error is the first fault and carries the others; what hangs on a broken table is not complained of."""
    path = write(tmp_path, BACKEND + "capacity = 0\n" + PROFILE + "seed = 'x'\n[prompt.x]\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    error = caught.value
    assert (error.where, error.table, error.key) == (str(path), "", "prompt")
    assert error.problem == "unknown table"
    assert str(error).endswith(f"(and 2 more: run `furcate check {path}`)")
    assert [(other.table, other.key) for other in error.others] == [
        ("backends.lab", "capacity"),
        ("profiles.quick", "seed"),
    ]
    assert [str(fault) for fault in find_faults(path)][1:] == [str(other) for other in error.others]


def test_a_prompt_may_choose_a_tool_of_a_profile_that_is_not_known_yet(tmp_path: Path) -> None:
    """Only with a default profile is it known which tools a prompt can choose from."""
    prompt = f"[prompts.ask]\n{USER}tool_choice = 'look_up'\n"
    assert said(tmp_path, BACKEND + PROFILE + prompt) == []
    [fault] = said(tmp_path, BACKEND + PROFILE + prompt + "profile = 'quick'")
    assert fault == "[prompts.ask] tool_choice: 'look_up' is not possible here; possible: auto, none, required"


def test_names_that_cannot_be_shown_are_refused(tmp_path: Path) -> None:
    """An empty name and one with white space around it are refused."""
    prompt = 'messages = [{ role = "user", template = "x" }]'
    assert said(tmp_path, BACKEND + f'[prompts.""]\n{prompt}\n[prompts." a"]\n{prompt}') == [
        '[prompts.""]: the name is empty; give it a name',
        "[prompts.\" a\"]: the name ' a' has white space around it or control characters; take them out",
    ]


def test_resources_from_python_are_checked_alike() -> None:
    """Values from Python go through the same checks, and are named by the same tables."""
    resources = check_resources(
        [Backend("lab", base_url="http://h/v1/"), Backend("home", kind="embedded")],
        [Profile("quick", "lab", "m")],
        [Prompt("ask", (MessageTemplate("user", "x"),), profile="quick")],
        where="Engine(...)",
    )
    assert resources.backends["lab"].base_url == "http://h/v1"
    assert resources.backends["home"].capacity == 1
    assert not resources.backends["home"].switches.function_tools

    with pytest.raises(ConfigError) as caught:
        check_resources(
            [Backend("lab", dialect="klingon"), Backend("lab"), Backend("home", kind="embedded", capacity=3)],
            [Profile("quick", "lap", "")],
            [Prompt("ask", (), profile="quik", contract=Contract({"type": 5}))],
            where="Engine(...)",
        )
    error = caught.value
    assert str(error) == (
        "Engine(...): [backends.lab]: there are two of this name; name them differently "
        "(and 6 more: see the error's others)"
    )
    assert [(other.table, other.key) for other in error.others] == [
        ("backends.lab", "dialect"),
        ("backends.home", "capacity"),
        ("profiles.quick", "backend"),
        ("prompts.ask", "profile"),
        ("prompts.ask", "messages"),
        ("prompts.ask", "contract.schema"),
    ]


def test_values_of_a_wrong_class_are_refused() -> None:
    """A dict where a backend belongs says what to give, and so does an engine without any backend."""
    with pytest.raises(ConfigError, match=r"Engine\(\.\.\.\): backends: found a dict; give Backend values"):
        check_resources([{"name": "x"}], (), (), where="Engine(...)")  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"Engine\(\.\.\.\): backends: there is no backend; give at least one"):
        check_resources([], (), (), where="Engine(...)")
