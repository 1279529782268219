# [HT] 2: two paths of 5 Mbit/s, 50 ms; at 5 s path if0 degrades to 1 Mbit/s,
# 100 ms.
#
# Usage: ns ht-multi.tcl SCHEME SEED END
#   SCHEME  tcp-default, tcp: as in ht-single.tcl, over if0 alone
#           sctp              multi-homed, if0 primary
#           ms-sctp           the same, with if1 made primary at 5.5 s, as a
#                             policy that sees the slower path would
#   END     seconds
# Output: the trace of both paths. Nodes 1 and 2 are the sender's if0 and if1,
# nodes 4 and 5 the receiver's.
lassign $argv scheme seed end
ns-random $seed
set ns [new Simulator]
foreach h {a b} {
  set core($h) [$ns node]
  set if0($h) [$ns node]
  set if1($h) [$ns node]
  if {[string match *sctp $scheme]} {
    $ns multihome-add-interface $core($h) $if0($h)
    $ns multihome-add-interface $core($h) $if1($h)
  }
}
$ns duplex-link $if0(a) $if0(b) 5Mb 50ms DropTail
$ns duplex-link $if1(a) $if1(b) 5Mb 50ms DropTail
$ns trace-queue $if0(a) $if0(b) stdout
$ns trace-queue $if1(a) $if1(b) stdout
switch $scheme {
  tcp-default { set tx [new Agent/TCP];       set rx [new Agent/TCPSink] }
  tcp         { set tx [new Agent/TCP/Sack1]; set rx [new Agent/TCPSink/Sack1]
                $tx set packetSize_ 1460; $tx set window_ 1000 }
  sctp - ms-sctp { set tx [new Agent/SCTP];   set rx [new Agent/SCTP]
                foreach a [list $tx $rx] { $a set mtu_ 1500; $a set dataChunkSize_ 1468 } }
  default     { error "unknown scheme $scheme" }
}
if {[string match *sctp $scheme]} {
  $ns multihome-attach-agent $core(a) $tx
  $ns multihome-attach-agent $core(b) $rx
} else {
  $ns attach-agent $if0(a) $tx
  $ns attach-agent $if0(b) $rx
}
$ns connect $tx $rx
set ftp [new Application/FTP]
$ftp attach-agent $tx
if {[string match *sctp $scheme]} { $tx set-primary-destination $if0(b) }
if {$scheme eq "ms-sctp"} { $ns at 5.5 "$tx set-primary-destination $if1(b)" }
proc degrade {} {
  global ns if0
  foreach {x y} {a b b a} {
    set l [[$ns link $if0($x) $if0($y)] link]
    $l set bandwidth_ 1Mb
    $l set delay_ 100ms
  }
}
$ns at 0.5 "$ftp start"
$ns at 5.0 degrade
$ns at $end { $ns flush-trace; exit 0 }
$ns run
