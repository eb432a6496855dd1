"""Prints a CycloneDX list of what a release is made of: sbom.py SOURCE VERSION TARBALL. No tool knows a C library's parts
without being told, and here are four."""

import hashlib
import json
import re
import sys
import uuid
from datetime import datetime, timezone
from os import environ
from pathlib import Path

source, version, tarball = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])


def wrapped(name, license_id, use):
    """What a file of subprojects/ says of a library, in the version that Meson would fetch."""
    wrap = (source / f"subprojects/{name.lower()}.wrap").read_text()
    url = re.search(r"^url = https://github.com/(.+?)/(.+)\.git$", wrap, re.M)
    revision = re.search(r"^revision = (\S+)$", wrap, re.M)[1]
    return part(name, license_id, use, version=revision, purl=f"pkg:github/{url[1]}/{url[2]}@{revision}".lower())


def part(name, license_id, use, **more):
    licenses = [{"expression": license_id}] if " " in license_id else [{"license": {"id": license_id}}]
    if license_id.startswith("LicenseRef"):
        licenses = [{"license": {"name": license_id.removeprefix("LicenseRef-")}}]
    return {"type": "library", "bom-ref": name, "name": name, "licenses": licenses, "description": use, **more}


parts = [
    wrapped("DLPack", "Apache-2.0", "the header of tensors, compiled in"),
    wrapped("cJSON", "MIT", "in the command and the wheels; the distribution's where it has one"),
    part("libgomp", "GPL-3.0-or-later WITH GCC-exception-3.1", "OpenMP's runtime, of the compiler; in the wheels"),
    part("cudart_static", "LicenseRef-CUDA-EULA", "CUDA's runtime; in builds with the CUDA backend alone"),
]
digest = hashlib.sha256(tarball.read_bytes()).hexdigest()
copes = {
    "type": "library",
    "bom-ref": "copes",
    "name": "copes",
    "version": version,
    "licenses": [{"license": {"id": "MIT"}}],
    "hashes": [{"alg": "SHA-256", "content": digest}],
}
bom = {
    "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "serialNumber": f"urn:uuid:{uuid.UUID(bytes=bytes.fromhex(digest)[:16], version=4)}",
    "version": 1,
    "metadata": {
        "timestamp": datetime.fromtimestamp(int(environ["SOURCE_DATE_EPOCH"]), timezone.utc).isoformat(),
        "component": copes,
    },
    "components": parts,
    "dependencies": [{"ref": "copes", "dependsOn": [one["bom-ref"] for one in parts]}],
}
print(json.dumps(bom, indent=1))
