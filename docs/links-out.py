#!/usr/bin/env python3
"""Preprocessor of mdBook: a link that leaves the book leads to the repository, and one to a chapter stays relative."""
import json
import os
import re
import sys

REPOSITORY = "https://github.com/evenkeel/evenkeel/blob/main/"
DOCS = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(DOCS)
LINK = re.compile(r"\]\(([^)#\s:]+)(#[^)\s]*)?\)")


def chapters(items):
    for item in items:
        if "Chapter" in item:
            yield item["Chapter"]
            yield from chapters(item["Chapter"]["sub_items"])


def rewrite(content, source, book):
    """Rewrites the links of a chapter. `source` is its path in the book, `book` maps real paths to such paths."""
    folder = os.path.dirname(os.path.realpath(os.path.join(DOCS, source)))

    def target(match):
        path, anchor = os.path.realpath(os.path.join(folder, match[1])), match[2] or ""
        if path in book:
            return f"]({os.path.relpath(book[path], os.path.dirname(source) or '.')}{anchor})"
        return f"]({REPOSITORY}{os.path.relpath(path, ROOT)}{anchor})"

    parts = re.split(r"(?ms)(^```.*?^```$)", content)
    return "".join(LINK.sub(target, part) if index % 2 == 0 else part for index, part in enumerate(parts))


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "supports":
        return
    _, book = json.load(sys.stdin)
    found = list(chapters(book["items"]))
    paths = {os.path.realpath(os.path.join(DOCS, chapter["path"])): chapter["path"] for chapter in found}
    for chapter in found:
        chapter["content"] = rewrite(chapter["content"], chapter["path"], paths)
    json.dump(book, sys.stdout)


main()
