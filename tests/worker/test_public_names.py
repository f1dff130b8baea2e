"""What `import changeover_worker` offers."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import changeover_worker


def test_all_names_exactly_the_public_members() -> None:
    public = {
        name
        for name, value in vars(changeover_worker).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert set(changeover_worker.__all__) == public
    assert len(changeover_worker.__all__) == len(public)


def test_importing_the_package_imports_no_provider_sdk() -> None:
    program = "import changeover_worker, sys; print({'openai', 'anthropic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")
