"""Writes tests/fixtures/advisories.jsonl anew, from a checkout of RustSec's database of advisories:

    git clone https://github.com/rustsec/advisory-db && python3 tests/python/advisories.py advisory-db

The first line says of which day the database is; each further line is one advisory. Advisories that
the database does not have yet are kept, as long as their lines say so with "by_hand".
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

LIST = pathlib.Path(__file__).parent.parent / "fixtures" / "advisories.jsonl"


def texts(database):
    """The text of each advisory; a database without a work tree will do."""
    git = ["git", "-C", database]
    names = subprocess.run(
        [*git, "ls-tree", "-r", "--name-only", "HEAD", "crates"],
        capture_output=True, text=True, check=True,
    ).stdout.split()
    wanted = [name for name in names if name.endswith(".md")]
    asked = "".join(f"HEAD:{name}\n" for name in wanted).encode()
    out = subprocess.run([*git, "cat-file", "--batch"], input=asked, capture_output=True, check=True).stdout
    at = 0
    for _ in wanted:
        end = out.index(b"\n", at)
        size = int(out[at:end].split()[2])
        yield out[end + 1:end + 1 + size].decode()
        at = end + 1 + size + 1


def advisories(database):
    for text in texts(database):
        about = tomllib.loads(re.search(r"```toml\n(.*?)```", text, re.S)[1])
        it, versions = about["advisory"], about.get("versions", {})
        if "withdrawn" in it:
            continue
        title = re.search(r"```\s*\n+# (.*)$", text, re.M)
        yield {
            "id": it["id"],
            "package": it["package"],
            "kind": it.get("informational", "vulnerability"),
            "patched": versions.get("patched", []),
            "unaffected": versions.get("unaffected", []),
            "title": title[1].strip() if title else "",
        }


def main(database):
    day = subprocess.run(
        ["git", "-C", database, "log", "-1", "--format=%cs"], capture_output=True, text=True, check=True,
    ).stdout.strip()
    found = {it["id"]: it for it in advisories(database)}
    if LIST.is_file():
        for line in LIST.read_text().splitlines()[1:]:
            it = json.loads(line)
            if it.get("by_hand"):
                found.setdefault(it["id"], it)
    lines = [{"database_of": day}, *(found[id] for id in sorted(found))]
    LIST.write_text("".join(json.dumps(it, separators=(",", ":")) + "\n" for it in lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
