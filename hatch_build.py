"""The package page: the README with absolute links, and the project's URLs.

Both need the address of the repository, `repository` in `pyproject.toml`. While it is empty, a link
to a file becomes its text and a picture is left out: on an index a relative link leads nowhere.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(
    r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!https?:|#)(?P<target>[^)\s]+)\)"
)
"""A relative link or picture in Markdown."""


class PackagePage(MetadataHookInterface):
    """Fills in `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add both to the metadata."""
        repository = self.config.get("repository", "").rstrip("/")
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": package_page(readme, repository),
        }
        metadata["urls"] = project_urls(repository)


def package_page(readme: str, repository: str) -> str:
    """Return the README with absolute links; without a repository, with none to files."""

    def absolute(link: re.Match[str]) -> str:
        picture, text, target = link.group("picture", "text", "target")
        if not repository:
            return "" if picture else text
        kind = "raw" if picture else "blob"
        return f"{picture}[{text}]({repository}/{kind}/HEAD/{target})"

    return re.sub(r"\n{3,}", "\n\n", LINK.sub(absolute, readme))


def project_urls(repository: str) -> dict[str, str]:
    """Return the links beside the package page."""
    if not repository:
        return {}
    return {
        "Homepage": repository,
        "Documentation": f"{repository}/tree/HEAD/docs",
        "Changelog": f"{repository}/blob/HEAD/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Security": f"{repository}/blob/HEAD/SECURITY.md",
    }
