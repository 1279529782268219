# Throughput under packet loss: one path or two of 8 Mbit/s, 2 ms and a queue of
# 50 packets each. Packets are lost at random from 1 s on, towards the receiver
# only and after they have spent their time on the link.
#
# Usage: ns per.tcl SCHEME PATHS LOSS0 LOSS1 SEED END
#   SCHEME  tcp-default, tcp: as in ht-single.tcl, over if0 alone
#           sctp              with 2 PATHS multi-homed, if0 primary
#           ms-sctp           the same, with if1 made primary at 2 s, as a
#                             policy does that has seen a second of its loss
#   LOSSn   0 to 1, of path n
#   END     seconds; traffic starts at 0.1
# Output: the trace of both paths. Nodes 1 and 2 are the sender's if0 and if1,
# nodes 4 and 5 the receiver's.
lassign $argv scheme paths loss0 loss1 seed end
set multi [expr {$paths == 2 && [string match *sctp $scheme]}]
ns-random $seed
set ns [new Simulator]
foreach h {a b} {
  set core($h) [$ns node]
  set if0($h) [$ns node]
  set if1($h) [$ns node]
  if {$multi} {
    $ns multihome-add-interface $core($h) $if0($h)
    $ns multihome-add-interface $core($h) $if1($h)
  }
}
# path links two interfaces and returns the model of the loss from x to y.
proc path {x y} {
  global ns
  $ns duplex-link $x $y 8Mb 2ms DropTail
  $ns queue-limit $x $y 50
  set e [new ErrorModel]
  $e unit pkt
  $e set rate_ 0
  $e ranvar [new RandomVariable/Uniform]
  $ns link-lossmodel $e $x $y
  $ns trace-queue $x $y stdout
  return $e
}
set e0 [path $if0(a) $if0(b)]
set e1 [path $if1(a) $if1(b)]
switch $scheme {
  tcp-default { set tx [new Agent/TCP];       set rx [new Agent/TCPSink] }
  tcp         { set tx [new Agent/TCP/Sack1]; set rx [new Agent/TCPSink/Sack1]
                $tx set packetSize_ 1460; $tx set window_ 1000 }
  sctp - ms-sctp { set tx [new Agent/SCTP];   set rx [new Agent/SCTP]
                foreach a [list $tx $rx] { $a set mtu_ 1500; $a set dataChunkSize_ 1468 } }
  default     { error "unknown scheme $scheme" }
}
if {$multi} {
  $ns multihome-attach-agent $core(a) $tx
  $ns multihome-attach-agent $core(b) $rx
} else {
  $ns attach-agent $if0(a) $tx
  $ns attach-agent $if0(b) $rx
}
$ns connect $tx $rx
set ftp [new Application/FTP]
$ftp attach-agent $tx
if {$multi} { $tx set-primary-destination $if0(b) }
$ns at 0.1 "$ftp start"
$ns at 1.0 "$e0 set rate_ $loss0; $e1 set rate_ $loss1"
if {$scheme eq "ms-sctp"} { $ns at 2.0 "$tx set-primary-destination $if1(b)" }
$ns at $end { $ns flush-trace; exit 0 }
$ns run
