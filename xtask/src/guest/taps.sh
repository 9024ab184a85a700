# Starts the command in "$@" with two taps that are wired to each other. The network namespace
# separates the taps from this machine's network. The bridge sends no packets of its own.
ip link add bridge type bridge stp_state 0 forward_delay 0 mcast_snooping 0 ageing_time 0
for tap in tap0 tap1; do
    ip tuntap add $tap mode tap multi_queue
    ip link set $tap master bridge txqueuelen 10000 up
done
ip link set bridge up
exec setpriv --pdeathsig KILL "$@"
