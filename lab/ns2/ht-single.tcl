# [HT] 1: three flows share a bottleneck; the middle one is measured.
#
#   0 ---\                /--- 5      access links 10 Mbit/s, 15 ms
#   1 ---- 3 -------- 4 ---- 6      3 - 4: 1.7 Mbit/s, 15 ms, a short queue
#   2 ---/                \--- 7
#
# Usage: ns ht-single.tcl PROTOCOL RUN QUEUE SEED END
#   PROTOCOL  tcp-default  as the simulator has it: Tahoe, 1000 bytes a packet,
#                          a window of 20
#             tcp          SACK, 1460 bytes a packet, a window that is no limit
#             sctp         1500 bytes a packet
#   RUN       1  all start at 0.5 s, the first stops at 4 s, the third at 7 s
#             2  the middle one starts at 0.5 s, the others at 1.5 s and 4.5 s,
#                and stop at 7.5 s
#   QUEUE     packets of the bottleneck's drop-tail queue: 5 or 10
#   END       seconds
# Output: the trace of the middle flow's first and last link.
lassign $argv protocol run queue seed end
ns-random $seed
set ns [new Simulator]
for {set i 0} {$i < 8} {incr i} { set n($i) [$ns node] }
foreach i {0 1 2} {
  $ns duplex-link $n($i) $n(3) 10Mb 15ms DropTail
  $ns duplex-link $n(4) $n([expr $i + 5]) 10Mb 15ms DropTail
}
$ns duplex-link $n(3) $n(4) 1.7Mb 15ms DropTail
$ns queue-limit $n(3) $n(4) $queue
$ns queue-limit $n(4) $n(3) $queue
$ns trace-queue $n(1) $n(3) stdout
$ns trace-queue $n(4) $n(6) stdout

# flow attaches a sender of a kind at node $from, a receiver at node $to, and
# returns the application that drives it.
proc flow {kind from to id} {
  global ns n
  switch $kind {
    tcp-default { set tx [new Agent/TCP];       set rx [new Agent/TCPSink] }
    tcp         { set tx [new Agent/TCP/Sack1]; set rx [new Agent/TCPSink/Sack1]
                  $tx set packetSize_ 1460; $tx set window_ 1000 }
    sctp        { set tx [new Agent/SCTP];      set rx [new Agent/SCTP]
                  foreach a [list $tx $rx] { $a set mtu_ 1500; $a set dataChunkSize_ 1468 } }
    default { error "unknown protocol $kind" }
  }
  $tx set fid_ $id
  $ns attach-agent $n($from) $tx
  $ns attach-agent $n($to) $rx
  $ns connect $tx $rx
  set ftp [new Application/FTP]
  $ftp attach-agent $tx
  return $ftp
}
# The competitors are of the same TCP as a middle flow would be.
set rival [expr {$protocol eq "tcp-default" ? "tcp-default" : "tcp"}]
if {$protocol eq "sctp-default"} { set rival tcp-default; set protocol sctp }
set first [flow $rival 0 5 1]
set middle [flow $protocol 1 6 2]
set third [flow $rival 2 7 3]
$ns at 0.5 "$middle start"
if {$run == 1} {
  $ns at 0.5 "$first start"
  $ns at 0.5 "$third start"
  $ns at 4.0 "$first stop"
  $ns at 7.0 "$third stop"
} else {
  $ns at 1.5 "$first start"
  $ns at 4.5 "$third start"
  $ns at 7.5 "$first stop"
  $ns at 7.5 "$third stop"
}
$ns at $end { $ns flush-trace; exit 0 }
$ns run
