"""Beijing's twelve stations of air quality, hour by hour (UCI 501), as a network."""

import gzip
import io
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.data.files import local_folder
from omkl.errors import InputError
from omkl.topology import Graph

COMPASS = ("N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE", "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW")
READINGS = [*range(5, 15), 16]  # PM2.5, PM10, SO2, NO2, CO, O3, temperature, pressure, dew point, rain, wind speed
WIND = 15
KM = 111.2  # a degree

Floats: TypeAlias = npt.NDArray[Any]


@cache
def readings() -> Floats:
    """Return PM2.5 and twelve other readings of every station and hour, ``(12, T, 13)``; nan where one is missing."""
    return np.stack([_read(name) for name, _, _ in _listed()])


def positions() -> Floats:
    """Return where the stations are, ``(12, 2)`` in kilometers."""
    degrees = np.array([place for _, *place in _listed()], dtype=np.float64)
    return np.asarray(KM * degrees * [1, np.cos(np.radians(degrees[:, 0].mean()))])


def linked(positions: Floats, slack: float = 1.0) -> Graph:
    """Return the graph of all links up to a length: the least that connects the nodes, times ``slack``."""
    pairs = np.stack(np.triu_indices(len(positions), 1), axis=1)
    apart = np.linalg.norm(np.diff(positions[pairs], axis=1)[:, 0], axis=1)
    graphs = ((length, Graph(len(positions), pairs[apart <= length])) for length in np.sort(apart))
    least = next(length for length, graph in graphs if not graph.components.any())
    return Graph(len(positions), pairs[apart <= slack * least], "geometric")


def _listed() -> list[list[str]]:
    folder = local_folder()
    if folder is None:
        raise InputError("OMKL_DATA is not set; it names the folder that has beijing_multisite; set it")
    return [line.split(",") for line in (folder / "beijing_multisite/stations.csv").read_text().splitlines()[1:]]


def _read(name: str) -> Floats:
    folder = local_folder()
    assert folder
    (path,) = (folder / "beijing_multisite").glob(f"PRSA_Data_{name}_*.csv.gz")
    text = gzip.decompress(path.read_bytes()).replace(b"NA", b"nan")
    for k, point in enumerate(COMPASS):
        text = text.replace(f'"{point}"'.encode(), str(k).encode())
    values = np.loadtxt(io.BytesIO(text), delimiter=",", skiprows=1, usecols=[*READINGS, WIND])
    direction = 2 * np.pi / len(COMPASS) * values[:, -1:]
    return np.concatenate([values[:, :-1], np.sin(direction), np.cos(direction)], axis=1)
