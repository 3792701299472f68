#!/bin/sh
# Certificates for mutual TLS: a certificate authority, made once, and a key and certificate for each name.
#
#     sh certificates.sh certificates a b c screen
#
# A name is a node's id, or the name of a program or person who asks nodes for something; [access] uses these names.
# A device needs ca.pem and its own two files. ca.key signs new certificates, so keep it off the devices.
set -eu
[ $# -ge 2 ] || { echo "usage: $0 FOLDER NAME..." >&2; exit 2; }
folder=$1
shift
for name; do
    case $name in *[!A-Za-z0-9_-]* | "" | ca) echo "no name: '$name'; letters, digits, - and _, and not ca" >&2; exit 2 ;; esac
done
umask 077
mkdir -p "$folder"
cd "$folder"

make() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "$@" 2>errors || { cat errors >&2; exit 1; }; }

[ -e ca.key ] || make -keyout ca.key -out ca.pem -days 3650 -subj "/CN=omkl network" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
for name; do
    [ ! -e "$name.pem" ] || { echo "$folder/$name.pem exists; remove it to make another" >&2; exit 2; }
    make -CA ca.pem -CAkey ca.key -keyout "$name.key" -out "$name.pem" -days 825 -subj "/CN=$name" \
        -addext basicConstraints=critical,CA:FALSE -addext subjectAltName="DNS:$name"
done
rm -f errors
chmod 644 ./*.pem
