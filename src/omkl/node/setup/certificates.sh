#!/bin/sh
# Certificates for mutual TLS: a certificate authority, made once, and a key and certificate for each name.
#
#     sh certificates.sh certificates a=192.168.1.11 b=sensor-b.local screen
#
# A name is a node's id, or that of a program or person who asks nodes for something: nodes go by it (see [access]).
# After = stands the host of a node, a name or an address: programs may compare it with the one that they connect to.
# A device needs ca.pem and its own two files. ca.key signs new ones: keep it off the devices.
set -eu
[ $# -ge 2 ] || { echo "usage: $0 FOLDER NAME..." >&2; exit 2; }
folder=$1
shift
for one; do
    name=${one%%=*} host=${one#"$name"}
    case ${host#=} in *[!A-Za-z0-9._:-]*) echo "no host: '${host#=}'; a name or an address" >&2; exit 2 ;; esac
    case $name in *[!A-Za-z0-9_-]* | "" | ca) echo "no name: '$name'; letters, digits, - and _, and not ca" >&2; exit 2 ;; esac
done
umask 077
mkdir -p "$folder"
cd "$folder"

make() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "$@" 2>errors || { cat errors >&2; exit 1; }; }

[ -e ca.key ] || [ -e ca.pem ] || make -keyout ca.key -out ca.pem -days 3650 -subj "/CN=omkl network" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
for file in ca.key ca.pem; do
    [ -s $file ] && continue
    echo "$folder/$file is missing or empty; it signs the others; copy it there, or remove the folder to begin anew" >&2
    exit 2
done
for one; do
    name=${one%%=*} host=${one#"$name"}
    host=${host#=} names=DNS:$name
    case $host in "") ;; *:*) names=$names,IP:$host ;; *[!0-9.]*) names=$names,DNS:$host ;; *) names=$names,IP:$host ;; esac
    [ ! -s "$name.pem" ] || { echo "$folder/$name.pem exists; remove it to make another" >&2; exit 2; }
    make -CA ca.pem -CAkey ca.key -keyout "$name.key" -out "$name.pem" -days 825 -subj "/CN=$name" \
        -addext basicConstraints=critical,CA:FALSE -addext subjectAltName="$names"
done
rm -f errors
chmod 644 ./*.pem
