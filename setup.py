"""Finds the packages; all else about the project stands in pyproject.toml.

Two folders of the repository's root ship inside the package: `mlagen.schedules` is `schedules/`,
`mlagen.templates` is `templates/`. A finder that reads pyproject.toml takes a package's name from
its folder, so it cannot name these.
"""

from setuptools import find_packages, setup

BESIDE = {"mlagen.schedules": "schedules", "mlagen.templates": "templates"}

setup(
    packages=[
        *find_packages(include=["mlagen", "mlagen.*"]),
        *BESIDE,
        *(f"{name}.{below}" for name, folder in BESIDE.items() for below in find_packages(folder)),
    ],
    package_dir=BESIDE,
)
