#!/bin/sh
# Certificates for mutual TLS: a certificate authority, made once, and a key and certificate for each node.
#
#     sh certificates.sh certificates a b c
#
# A device needs ca.pem and its own two files. ca.key signs new nodes: keep it off the devices.
set -eu
[ $# -ge 2 ] || { echo "usage: $0 FOLDER ID..." >&2; exit 2; }
folder=$1
shift
umask 077
mkdir -p "$folder"
cd "$folder"

make() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "$@" 2>errors || { cat errors >&2; exit 1; }; }

[ -e ca.key ] || make -keyout ca.key -out ca.pem -days 3650 -subj "/CN=omkl network" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
for id; do
    [ ! -e "$id.pem" ] || { echo "$folder/$id.pem exists; remove it to make another" >&2; exit 2; }
    make -CA ca.pem -CAkey ca.key -keyout "$id.key" -out "$id.pem" -days 825 -subj "/CN=$id" \
        -addext basicConstraints=critical,CA:FALSE -addext subjectAltName="DNS:$id"
done
rm -f errors
chmod 644 ./*.pem
