"""Sets whose rows belong to places: the air over Beijing, hour by hour, and the traffic of Los Angeles, with graphs."""

import gzip
import io
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.data.files import Raw
from omkl.data.readers import csv
from omkl.topology import Graph, nearby

COMPASS = ("N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE", "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW")
READINGS = [*range(5, 15), 16]  # PM2.5, PM10, SO2, NO2, CO, O3, temperature, pressure, dew point, rain, wind speed
WIND = 15
DAY, YEAR = 24, 24 * 365.25  # hours
KM = 111.2  # a degree
LAGS = 12  # readings, five minutes apart
AHEAD = 3

Floats: TypeAlias = npt.NDArray[np.float64]


def beijing(contents: Sequence[bytes]) -> Raw:
    """Return the rows of all stations without a missing value, in the order of time, and PM2.5."""
    hours = beijing_hours(contents)
    return _split(hours[np.isfinite(hours).all(axis=-1)])


def beijing_stations(contents: Sequence[bytes]) -> Raw:
    """Return the hours in which no station has a missing value, ``(T, 12, 16)``, and PM2.5 ``(T, 12)``."""
    hours = beijing_hours(contents)
    return _split(hours[np.isfinite(hours).all(axis=(1, 2))])


def beijing_hours(contents: Sequence[bytes]) -> Floats:
    """Return PM2.5 and sixteen inputs of every hour and station, ``(T, 12, 17)``; nan where a reading is missing.

    The inputs are ten other readings, sine and cosine of the wind's direction, of the hour and of the season.
    """
    readings = np.stack([_station(content) for content in contents[:-1]], axis=1)
    hours = np.arange(len(readings))[:, None, None]  # every file has all of them
    time = np.broadcast_to(
        np.concatenate([*_circle(hours / DAY), *_circle(hours / YEAR)], axis=2), (*readings.shape[:2], 4)
    )
    return np.concatenate([readings, time], axis=2)


def beijing_graph(contents: Sequence[bytes]) -> Graph:
    """Return the stations with all links up to the least length that connects them."""
    return nearby(_places(contents[-1], usecols=(1, 2)))


def los_loop(contents: Sequence[bytes]) -> Raw:
    """Return every sensor's last hour and the time of day, ``(T, 207, 14)``, and its speed a quarter of an hour on."""
    speeds = csv(contents[0], skiprows=1)
    speeds = (speeds - speeds.mean()) / speeds.std()
    now = np.arange(LAGS - 1, len(speeds) - AHEAD)
    lags = speeds[now[:, None] - np.arange(LAGS)].swapaxes(1, 2)
    time = np.broadcast_to(np.stack(_circle(now / (12 * DAY)), axis=1)[:, None], (*lags.shape[:2], 2))
    return Raw(np.concatenate([lags, time], axis=2), speeds[now + AHEAD])


def los_loop_graph(contents: Sequence[bytes]) -> Graph:
    """Return the road graph; the one sensor without a link in it is linked to the nearest."""
    adjacency = csv(contents[1])
    places = _places(contents[2], usecols=(2, 3))
    edges = np.argwhere(np.triu(adjacency, 1))
    (alone,) = np.setdiff1d(np.arange(len(places)), edges)
    apart = np.linalg.norm(places - places[alone], axis=1)
    return Graph(len(places), np.concatenate([edges, [[alone, np.argsort(apart)[1]]]]), "los_loop", places)


def _station(content: bytes) -> Floats:
    text = gzip.decompress(content).replace(b"NA", b"nan")
    for k, point in enumerate(COMPASS):
        text = text.replace(f'"{point}"'.encode(), str(k).encode())
    values = np.loadtxt(io.BytesIO(text), delimiter=",", skiprows=1, usecols=[*READINGS, WIND])
    return np.concatenate([values[:, :-1], *_circle(values[:, -1:] / len(COMPASS))], axis=1)


def _circle(turns: Floats) -> tuple[Floats, Floats]:
    return np.sin(2 * np.pi * turns), np.cos(2 * np.pi * turns)


def _split(rows: Floats) -> Raw:
    return Raw(rows[..., 1:], rows[..., 0])


def _places(content: bytes, usecols: tuple[int, int]) -> Floats:
    """Return kilometers to the east and to the north, from columns of latitudes and longitudes."""
    north, east = np.loadtxt(io.BytesIO(content), delimiter=",", skiprows=1, usecols=usecols).T
    return KM * np.stack([east * np.cos(np.radians(north.mean())), north], axis=1)
