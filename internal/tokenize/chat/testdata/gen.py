"""Writes the golden files beside it, from what transformers says.

    python gen.py qwen3=DIR mistral_nemo=DIR

needs transformers and jinja2. Each DIR holds a model's tokenizer_config.json. Of
it the chat template and the special tokens are kept, as NAME.config.json;
continue.jsonl gets one row for each conversation that is to be continued, with
what transformers rendered or the error it raised.
"""

import copy
import json
import pathlib
import sys

from transformers.utils.chat_template_utils import render_jinja_template

TOKENS = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]
TOOL = {"type": "function", "function": {"name": "weather", "description": "Weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


def user(content="Hi"):
    return {"role": "user", "content": content}


def bot(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content="Be brief."):
    return {"role": "system", "content": content}


def call(args, id="a1b2c3d4e"):
    return {"id": id, "type": "function", "function": {"name": "weather", "arguments": args}}


def tool(content="21 C", id="a1b2c3d4e"):
    return {"role": "tool", "content": content, "tool_call_id": id}


def text(s):
    return {"type": "text", "text": s}


# name, messages, further arguments
CASES = [
    ("plain", [user(), bot("The cap")], {}),
    ("system", [system(), user(), bot("The cap")], {}),
    ("empty", [user(), bot("")], {}),
    ("only_spaces", [user(), bot("   ")], {}),
    ("trailing_space", [user(), bot("The cap ")], {}),
    ("trailing_spaces_tab", [user(), bot("The cap \t ")], {}),
    ("trailing_newlines", [user(), bot("Line one.\n\n")], {}),
    ("leading_newlines", [user(), bot("\n\nLine one.")], {}),
    ("leading_spaces", [user(), bot("   Line one.")], {}),
    ("unicode_space_at_end", [user(), bot("Zürich\u3000\u2028\x1f")], {}),
    ("unicode", [user("Wo?"), bot("In Zürich 🏔 日本")], {}),
    ("tag_in_user", [user("Say CONTINUE_FINAL_MESSAGE_TAG now"), bot("Sure, ")], {}),
    ("tag_in_content", [user(), bot("x CONTINUE_FINAL_MESSAGE_TAG y")], {}),
    ("tag_at_end_of_content", [user(), bot("x CONTINUE_FINAL_MESSAGE_TAG ")], {}),
    ("special_in_text", [user(), bot("a<|im_end|>b</s>")], {}),
    ("same_text_twice", [user("twin"), bot("twin")], {}),
    ("long_history", [user(), bot("Hello."), user("And?"), bot("Well")], {}),
    ("user_last", [user("Fin")], {}),
    ("user_last_after_answer", [user(), bot("ok"), user("Fin ")], {}),
    ("system_last", [user(), system("Fin")], {}),
    ("tool_last", [user(), bot("", tool_calls=[call({"city": "Bern"})]), tool("21 ")], {}),
    ("think_open", [user(), bot("<think>\nLet me")], {}),
    ("think_closed", [user(), bot("<think>\nI know.\n</think>\n\nIt is")], {}),
    ("think_only", [user(), bot("<think>\nI know.\n</think>")], {}),
    ("reasoning_content", [user(), bot("It is", reasoning_content="I know.")], {}),
    ("reasoning_content_empty", [user(), bot("It is ", reasoning_content="")], {}),
    ("tool_calls_dict", [user(), bot("Looking", tool_calls=[call({"city": "Bern"})])], {"tools": [TOOL]}),
    ("tool_calls_str", [user(), bot("Looking", tool_calls=[call('{"city": "Bern"}')])], {"tools": [TOOL]}),
    ("after_tool", [user(), bot("", tool_calls=[call({"city": "Bern"})]), tool(), bot("It is")], {"tools": [TOOL]}),
    ("tools", [system(), user(), bot("It is")], {"tools": [TOOL]}),
    ("enable_thinking_false", [user(), bot("It is")], {"enable_thinking": False}),
    ("parts", [user(), bot([text("One"), text("Two ")])], {}),
    ("parts_of_user", [user([text("One")]), bot("Two")], {}),
    ("parts_image_last", [user(), bot([text("One"), {"type": "image"}])], {}),
    ("parts_without_text", [user(), bot([{"type": "image"}])], {}),
    ("parts_empty", [user(), bot([])], {}),
    ("parts_string", [user(), bot(["a text"])], {}),
    ("parts_text_null", [user(), bot([{"type": "text", "text": None}])], {}),
    ("null", [user(), bot(None)], {}),
    ("missing", [user(), {"role": "assistant"}], {}),
    ("missing_with_tool_calls", [user(), {"role": "assistant", "tool_calls": [call({})]}], {}),
    ("number", [user(), bot(7)], {}),
    ("object", [user(), bot({"a": 1})], {}),
    ("unknown_role", [user(), {"role": "critic", "content": "No"}], {}),
]

# A template that takes parts, as many newer ones do, and two that trim: behind
# the message one prints a space, as the tag has it, and one does not.
MADE_UP = {
    "parts": "{% for message in messages %}[{{ message.role }}]{% for part in message.content %}"
             "{% if part.type == 'text' %}{{ part.text }}{% else %}<{{ part.type }}>{% endif %}{% endfor %}[/]\n"
             "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}",
    "trim": "{% for message in messages %}[{{ message.role }}] {{ message.content | trim }} [/]{% endfor %}",
    "trim_tight": "{% for message in messages %}[{{ message.role }}]{{ message.content | trim }}[/]{% endfor %}",
}


def main():
    here = pathlib.Path(__file__).parent
    configs = {name: {"chat_template": src, "eos_token": "</s>"} for name, src in MADE_UP.items()}
    for arg in sys.argv[1:]:
        name, dir = arg.split("=", 1)
        config = json.loads(pathlib.Path(dir, "tokenizer_config.json").read_text(encoding="utf-8"))
        kept = {k: config[k] for k in [*TOKENS, "additional_special_tokens", "chat_template"] if k in config}
        (here / f"{name}.config.json").write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        configs[name] = kept
    with open(here / "continue.jsonl", "w", encoding="utf-8") as out:
        for name, config in configs.items():
            tokens = {k: config[k] for k in TOKENS if config.get(k) is not None}
            for case, messages, more in CASES:
                if name == "parts":
                    messages = [dict(m, content=[text(m["content"])]) if isinstance(m.get("content"), str) else m
                                for m in messages]
                row = {"template": name, "name": case, "messages": messages, **more}
                if name in MADE_UP:
                    row["source"] = MADE_UP[name]
                try:
                    rendered, _ = render_jinja_template([copy.deepcopy(messages)], chat_template=config["chat_template"],
                                                        continue_final_message=True, **{**tokens, **more})
                    row["rendered"] = rendered[0]
                except Exception as e:
                    row["error"] = f"{type(e).__name__}: {e}".splitlines()[0]
                out.write(json.dumps(row, ensure_ascii=False) + "\n")


main()
