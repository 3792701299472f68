"""Certificates for tests, good and bad."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DEPLOY, SCRIPT = ROOT / "deploy", ROOT / "src" / "omkl" / "node" / "setup" / "certificates.sh"
TLS = """
[tls]
ca = "{0}/ca.pem"
certificate = "{0}/{{id}}.pem"
key = "{0}/{{id}}.key"
"""
AUTHORITY = """
[ca]
default_ca = own
[own]
database = index.txt
serial = serial
new_certs_dir = .
default_md = sha256
policy = any
x509_extensions = leaf
[leaf]
basicConstraints = critical,CA:FALSE
[any]
commonName = supplied
"""


def certify(folder: Path, *names: str) -> "subprocess.CompletedProcess[str]":
    """Run the script that is shipped."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    script = ["sh", str(SCRIPT), str(folder), *names]
    return subprocess.run(script, capture_output=True, text=True, check=False)


def certify_between(folder: Path, name: str, start: int, end: int) -> None:
    """Make a certificate of the folder's authority that is valid from one new year to another."""
    (folder / "index.txt").write_text("")
    (folder / "serial").write_text("01\n")
    (folder / "ca.cnf").write_text(AUTHORITY)
    ask = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}"]
    sign = ["ca", "-batch", "-config", "ca.cnf", "-cert", "ca.pem", "-keyfile", "ca.key", "-in", "request.pem"]
    dates = ["-startdate", f"{start}0101000000Z", "-enddate", f"{end}0101000000Z"]
    for command in (
        [*ask, "-keyout", f"{name}.key", "-out", "request.pem"],
        [*sign, *dates, "-notext", "-out", f"{name}.pem"],
    ):
        subprocess.run(["openssl", *command], cwd=folder, capture_output=True, check=True)


def files(folder: Path, name: str, ca: Path | None = None) -> dict[str, str]:
    """Return where the files of a name are."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    return {"ca": str((ca or folder) / "ca.pem"), "certificate": str(certificate), "key": str(key)}
