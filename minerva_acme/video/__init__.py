"""Videos of episodes."""

from minerva_acme.video.filming import Filmer, make_filmer

__all__ = ["Filmer", "make_filmer"]
