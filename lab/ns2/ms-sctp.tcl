# [MS] Algorithm 1 on the paths of a multi-homed SCTP agent. Sourced by the
# scripts that have such paths.

# ms-sctp lets the losses of each slot choose the primary path of the agent tx. A
# path is a list of the node that it begins at and the node that it ends at. Losses
# are those of probes of 64 bytes, one on each path in each interval: they meet the
# same losses as data, and idle paths have them as well. The paper counts the
# active path's retransmissions instead, which the agent does not tell by path.
#
# As in the paper, the largest loss is never forgotten, and a path on which nothing
# arrives counts 101. With two paths the paper's draw among equals never comes: one
# of them is the current path, which stays.
proc ms-sctp {tx paths slot interval} {
  global ns
  set list {}
  foreach p $paths {
    lassign $p from to
    set probes [new Agent/UDP]
    set seen [new Agent/LossMonitor]
    $ns attach-agent $from $probes
    $ns attach-agent $to $seen
    $ns connect $probes $seen
    set clock [new Application/Traffic/CBR]
    $clock set packetSize_ 64
    $clock set interval_ $interval
    $clock attach-agent $probes
    $ns at 0 "$clock start"
    lappend list [list $to $seen]
  }
  $ns at $slot [list ms-sctp-slot $tx $list $slot 0 [lrepeat [llength $list] {0 0 0}]]
}

# ms-sctp-slot judges the slot that ends now. The state is, by path, the probes
# seen and missed up to the slot's beginning, and the largest loss.
proc ms-sctp-slot {tx paths slot current state} {
  global ns
  set scores {}
  set new {}
  foreach p $paths s $state {
    lassign $p to monitor
    lassign $s seen missed max
    set seenNow [$monitor set npkts_]
    set missedNow [$monitor set nlost_]
    set last 101
    if {$seenNow > $seen} {
      set last [expr {100. * ($missedNow - $missed) / ($seenNow - $seen + $missedNow - $missed)}]
    }
    set max [expr {max($max, $last)}]
    lappend scores [expr {0.25 * $max + 0.75 * $last}]
    lappend new [list $seenNow $missedNow $max]
  }
  set best [lindex [lsort -real $scores] 0]
  if {[lindex $scores $current] > $best} {
    set current [lsearch -exact $scores $best]
    $tx set-primary-destination [lindex $paths $current 0]
  }
  $ns at [expr {[$ns now] + $slot}] [list ms-sctp-slot $tx $paths $slot $current $new]
}
