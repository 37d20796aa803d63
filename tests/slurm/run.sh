#!/bin/sh
# Measures candidates through a real Slurm on this machine: munged, slurmctld and slurmd with a
# configuration of their own, then `--runner` with srun and with sbatch, and `--on` with srun.
#
#     tests/slurm/run.sh [TEC]
#
# Needs Debian's slurm-wlm and munge, and root. Leaves nothing behind.
set -eu

tec=$(realpath "${1:-target/debug/tec}")
PATH=$PATH:/usr/sbin
for program in munged slurmctld slurmd srun sbatch; do
    command -v "$program" > /dev/null || { echo "skipped: no $program here"; exit 77; }
done

dir=$(mktemp -d)
chmod 755 "$dir"
pids=
finish() {
    for pid in $pids; do kill "$pid" 2> /dev/null || :; done
    wait
    rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

mkdir "$dir/state" "$dir/spool"
dd if=/dev/urandom of="$dir/munge.key" bs=1024 count=1 2> /dev/null
chmod 400 "$dir/munge.key"
host=$(hostname -s)
cat > "$dir/slurm.conf" << CONF
ClusterName=tec
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
SlurmctldPort=16817
SlurmdPort=16818
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES State=UP
CONF
export SLURM_CONF="$dir/slurm.conf"

munged --foreground --force --socket="$dir/munge.socket" --key-file="$dir/munge.key" \
    --pid-file="$dir/munge.pid" --log-file="$dir/munge.log" --seed-file="$dir/munge.seed" &
pids="$pids $!"
while [ ! -S "$dir/munge.socket" ]; do sleep 0.1; done
slurmctld -D > /dev/null 2>&1 &
pids="$! $pids"
slurmd -D > /dev/null 2>&1 &
pids="$! $pids"
tries=0
until [ "$(sinfo -h -o %T 2> /dev/null)" = idle ]; do
    tries=$((tries + 1))
    if [ $tries -gt 100 ]; then
        echo "Slurm does not start:"
        tail -n 5 "$dir/slurmctld.log" "$dir/slurmd.log"
        exit 1
    fi
    sleep 0.3
done

export XDG_CACHE_HOME="$dir/cache"
cd "$dir"
cat > product.te << 'TE'
kernel product(n = 64) {
    input A: float32[n, n]
    input B: float32[n, n]
    reduce k: 0..n
    output C[i: n, j: n] = sum(A[i, k] * B[k, j], axis=k)
}
TE
for runner in 'srun -N1 --exclusive sh {}' 'sbatch --wait --exclusive -o /dev/null {}'; do
    cp product.te tuned.te
    rm -f product.records.jsonl
    # A few trials by hand: any search does the same.
    "$tec" tune product.te --trials 8 --budget 60s --runner "$runner" \
        --records product.records.jsonl > out.txt 2>&1 || { cat out.txt; exit 1; }
    right=$(grep -c '"verdict":"same"' product.records.jsonl || :)
    if [ "$right" -lt 4 ]; then
        echo "$runner: only $right trials ran right"
        cat out.txt product.records.jsonl
        exit 1
    fi
    "$tec" build product.te --records product.records.jsonl 2> /dev/null
    echo "$runner: $right trials ran right"
done

rm -f product.records.jsonl
on="srun -N1 --exclusive --quiet $tec serve --stdio"
"$tec" run product.te --on "$on" --verify
"$tec" tune product.te --trials 8 --budget 60s --on "$on" --records product.records.jsonl \
    > out.txt 2>&1 || { cat out.txt; exit 1; }
right=$(grep -c '"verdict":"same"' product.records.jsonl || :)
if [ "$right" -lt 8 ]; then
    echo "$on: only $right trials ran right"
    cat out.txt product.records.jsonl
    exit 1
fi
echo "$on: $right trials ran right"
