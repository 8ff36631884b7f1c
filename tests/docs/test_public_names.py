"""What ``mesh_runtime`` offers stands three times in its file: for type checkers, for the loader, and by name. The three say the same."""

import ast
from importlib import import_module
from pathlib import Path

import mesh_runtime


def for_type_checkers() -> dict[str, str]:
    """Names to the module from which they are imported where a type checker reads."""
    tree = ast.parse(Path(mesh_runtime.__file__).read_text("utf-8"))
    (guarded,) = [one for one in tree.body if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING"]
    imports = [one for one in guarded.body if isinstance(one, ast.ImportFrom) and one.module != "typing"]
    return {name.name: str(one.module) for one in imports for name in one.names}


def test_the_loader_knows_the_names_that_a_type_checker_sees_from_where_it_sees_them() -> None:
    assert for_type_checkers() == mesh_runtime._HOME_OF
    assert sorted(mesh_runtime.__all__) == sorted(mesh_runtime._HOME_OF)


def test_each_name_can_be_had() -> None:
    for name, home in mesh_runtime._HOME_OF.items():
        assert getattr(mesh_runtime, name) is getattr(import_module(home), name)
