#!/usr/bin/env bash
# Submits real jobs to a real Slurm of two nodes, both on this one machine, and compares their frames
# with those of a local run:
#
#   whole     a job of 2 ranks on one node runs to its end; each rank may use all cores of the job
#   nodes     the same on 2 nodes
#   killed    one of its ranks is killed: the job goes on from a checkpoint
#   stopped   the job is told to stop, as before a time limit: it stops with a checkpoint, is queued
#             again, and goes on
#   cancelled the job is cancelled, and submitted again by hand
#   limit     (only with --time-limit, some minutes) Slurm itself stops it before its time limit
#
# Needs root, Debian's packages, and an installed Loki with the `mpi` extra:
#
#   apt-get install slurmctld slurmd slurm-client munge
#   tests/slurm/check_slurm.sh [--time-limit] [SCRATCH_FOLDER]
#
# Slurm runs from the scratch folder and is stopped at the end; nothing is left running.
set -euo pipefail

limit=0
[ "${1:-}" = --time-limit ] && limit=1 && shift
scratch=${1:-$(mktemp -d)}
mkdir -p "$scratch"
scratch=$(cd "$scratch" && pwd)
project=$(cd "$(dirname "$0")/../.." && pwd)
wtloki=${WTLOKI:-$project/.venv/bin/wtloki}
host=$(hostname -s)
export SLURM_CONF=$scratch/slurm.conf

say() { printf '%s  %s\n' "$(date +%T)" "$*"; }
fail() {
    say "FAILED: $*"
    exit 1
}

# -- Slurm -----------------------------------------------------------------------------------------

start_slurm() {
    command -v slurmctld >/dev/null || fail "apt-get install slurmctld slurmd slurm-client munge"
    rm -rf "$scratch/state" "$scratch/spool"
    mkdir -p "$scratch/state" "$scratch/spool/n1" "$scratch/spool/n2" /run/munge
    chown munge: /run/munge
    # Ranks are bound to cores, as on most clusters.
    cat >"$SLURM_CONF" <<CONF
ClusterName=loki
SlurmctldHost=$host(127.0.0.1)
AuthType=auth/munge
MpiDefault=none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$scratch/state
SlurmdSpoolDir=$scratch/spool/%n
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmdPidFile=$scratch/slurmd.%n.pid
SlurmctldLogFile=$scratch/slurmctld.log
SlurmdLogFile=$scratch/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
TaskPluginParam=cores
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=17001 CPUs=$(nproc) RealMemory=2000
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=17002 CPUs=$(nproc) RealMemory=2000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
    if ! munge -n 2>/dev/null | unmunge >/dev/null 2>&1; then
        su -s /bin/sh munge -c "munged --force"
        touch "$scratch/started_munge"
    fi
    slurmctld
    for node in n1 n2; do slurmd -N "$node"; done
    for _ in $(seq 30); do
        [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && return
        sleep 1
    done
    fail "Slurm did not start: see $scratch/*.log"
}

stop_slurm() {
    scancel --user root 2>/dev/null || true
    for _ in $(seq 40); do
        squeue -h 2>/dev/null | grep -q . || break
        sleep 1
    done
    for name in slurmd.n1 slurmd.n2 slurmctld; do
        if [ -f "$scratch/$name.pid" ]; then
            kill "$(cat "$scratch/$name.pid")" 2>/dev/null || true
        fi
    done
    if [ -f "$scratch/started_munge" ]; then
        kill "$(cat /run/munge/munged.pid)" 2>/dev/null || true
        rm -f "$scratch/started_munge"
    fi
    sleep 1
}

# -- jobs ------------------------------------------------------------------------------------------

scene=(dust.loki.json --input seeds=dust_seeds.npz --set substeps=40 --checkpoint-every 5)

submit() { # FOLDER OPTIONS...: prints the number of the job
    local folder=$1
    shift
    "$wtloki" submit "${scene[@]}" --ranks 2 --output "$folder" --json "$@" |
        sed -n 's/.*"job": "\([0-9]*\)".*/\1/p'
}

field() { # JOB NAME: one value of what Slurm knows of a job
    scontrol show job "$1" | tr ' ' '\n' | sed -n "s/^$2=//p" | head -n 1
}

wait_for_frame() { # FOLDER FRAME
    for _ in $(seq 600); do
        [ -f "$1/dust/cache/frames/$(printf %06d "$2").json" ] && return
        sleep 0.2
    done
    fail "$1 has no frame $2: $(cat "$1"/slurm-*.log "$1/server.log" 2>/dev/null)"
}

wait_for_end() { # JOB FOLDER
    local hurried=0 restarts
    for _ in $(seq 1200); do
        case $(field "$1" JobState) in
        COMPLETED) return ;;
        PENDING)
            # Slurm lets a job that was queued again wait for two minutes
            restarts=$(field "$1" Restarts)
            if [ "$restarts" != "$hurried" ]; then
                hurried=$restarts
                scontrol update jobid="$1" StartTime=now+5
            fi
            sleep 0.5
            ;;
        RUNNING | COMPLETING | REQUEUED) sleep 0.5 ;;
        *) fail "job $1 is $(field "$1" JobState): $(cat "$2"/slurm-*.log "$2/server.log")" ;;
        esac
    done
    fail "job $1 does not end"
}

expect_same() { # FOLDER LOCAL
    diff -r "$2/frames" "$1/dust/cache/frames" >"$scratch/diff.txt" ||
        fail "$1 differs from $2: $(head -n 5 "$scratch/diff.txt")"
    say "    its $(ls "$2/frames"/*.json | wc -l) frames equal those of the local run, bit for bit"
}

ranks_of() { # JOB NODE...: process numbers of its ranks
    local job=$1 node pid words
    shift
    for node in "$@"; do
        for pid in $(scontrol listpids "$job" "$node" | awk 'NR > 1 && $1 > 0 {print $1}'); do
            words=$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null) || continue
            case $words in
            *mpiexec*) ;;
            *loki_vfx.bridges.live.worker*) echo "$pid" ;;
            esac
        done
    done
}

# -- the check -------------------------------------------------------------------------------------

trap stop_slurm EXIT
rm -rf "$scratch/scenes"
mkdir -p "$scratch/scenes"
cd "$scratch/scenes"
start_slurm
say "Slurm $(sinfo --version | cut -d ' ' -f 2) on $host"
"$wtloki" new dust >/dev/null
"$wtloki" run "${scene[@]}" --ranks 2 --threads 1 --frames 40 --output local >/dev/null
say "local: 40 frames on 2 ranks"

folder="$PWD/whole job #1" # Slurm must find its way to such a folder too
job=$(submit "$folder" --frames 40)
say "whole: job $job"
wait_for_frame "$folder" 2
for pid in $(ranks_of "$job" n1); do
    cores=$(sed -n 's/Cpus_allowed_list:\t//p' "/proc/$pid/status")
    say "    rank with pid $pid may use cores $cores"
    [ "$cores" = "0-$(($(nproc) - 1))" ] || fail "Slurm bound a rank to cores $cores"
done
"$wtloki" top --once --root "$folder" | sed 's/^/          /'
srun --jobid="$job" --overlap -n 1 "$wtloki" top --once --json --root "$folder" | grep -q '"running"' ||
    fail "srun --overlap wtloki top"
wait_for_end "$job" "$folder"
expect_same "$folder" local

job=$(submit nodes --frames 40 --nodes 2)
say "nodes: job $job"
wait_for_frame nodes 2
say "    ranks: pid $(ranks_of "$job" n1) on n1, $(ranks_of "$job" n2) on n2"
wait_for_end "$job" nodes
expect_same nodes local

job=$(submit killed --frames 40 --nodes 2)
say "killed: job $job"
wait_for_frame killed 8
kill -KILL "$(ranks_of "$job" n2)"
wait_for_end "$job" killed
grep -o 'restarting.*' killed/server.log | sed 's/^/          /'
expect_same killed local

job=$(submit stopped --frames 40 --nodes 2 --requeue)
say "stopped: job $job"
wait_for_frame stopped 8
scancel --signal=TERM --batch "$job"
wait_for_end "$job" stopped
sed 's/^/          /' "stopped/slurm-$job.log"
[ "$(field "$job" Restarts)" = 1 ] || fail "job $job was not queued again"
expect_same stopped local

job=$(submit cancelled --frames 40)
say "cancelled: job $job"
wait_for_frame cancelled 8
scancel "$job"
while [ "$(field "$job" JobState)" != CANCELLED ] || squeue -h --job "$job" | grep -q .; do sleep 0.5; done
job=$(sbatch --parsable cancelled/job.sh)
say "    submitted again: job $job"
wait_for_end "$job" cancelled
expect_same cancelled local

if [ "$limit" = 1 ]; then
    "$wtloki" run "${scene[@]}" --ranks 2 --threads 1 --frames 400 --output local_long >/dev/null
    say "local: 400 frames on 2 ranks"
    job=$(submit limit --frames 400 --requeue --time 2 --stop-before 55)
    say "limit: job $job"
    wait_for_end "$job" limit
    sed 's/^/          /' "limit/slurm-$job.log"
    say "    queued again $(field "$job" Restarts) times"
    [ "$(field "$job" Restarts)" -ge 1 ] || fail "job $job did not reach its time limit"
    expect_same limit local_long
fi

stop_slurm
trap - EXIT
left=$(ps -eo pid,args | grep -E "$scratch|munged|slurmctld|slurmd|slurmstepd" |
    grep -vE 'grep|check_slurm|defunct' || true)
[ -z "$left" ] || fail "left running: $left"
say "all is well, and nothing is left running"
