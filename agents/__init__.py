"""Agents: each is a package with its config, networks, acting, learning and builder."""

if __name__ != "minerva_acme.agents":
    # Imported by its folder's name, from the repository's root: every class would exist twice.
    raise ImportError(
        f"`{__name__}` is installed as `minerva_acme.agents`: write `from minerva_acme.agents import ...`."
    )

__all__: list[str] = []
