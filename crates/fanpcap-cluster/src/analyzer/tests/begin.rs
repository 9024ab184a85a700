//! Analyzers that start later than their nodes, refuse records, and forget old sessions.

use super::*;

/// An analyzer that begins at `begin` and has taken the batches `sequences` of one node.
fn met_at(begin: u64, sequences: &[usize]) -> Analyzer {
    let mut analyzer = Analyzer::new(AnalyzerSettings {
        begin,
        ..analyzer().settings
    });
    let mut builder = node(OLD);
    let packets = (0..200)
        .filter_map(|number| builder.push(Revision(1), &record(BEGIN + number, false, &[1; 70])));
    let batches: Vec<_> = packets.collect();
    for &at in sequences {
        let _ = analyzer.take(&Batch::decode(&batches[at]).unwrap(), BEGIN);
    }
    analyzer
}

#[test]
fn a_session_that_began_before_the_analyzer_begins_with_the_first_batch_seen() {
    let counters = met_at(BEGIN - MS, &[20, 21, 23, 19]).counters();
    assert_eq!((counters.batches, counters.export_lost), (4, 2));
    // If the session began after the analyzer's start, the batches 0 to 18 count as lost too.
    let counters = met_at(0, &[20, 21, 23, 19]).counters();
    assert_eq!((counters.batches, counters.export_lost), (4, 19 * 2 + 2));
}

#[test]
fn a_topology_that_was_missed_between_two_looks_fences_nobody() {
    let mut analyzer = analyzer();
    analyzer.follow(Revision(1), topology(0, None));
    let bytes = batch(OLD, 1, &[record(BEGIN - 900 * MS, false, b"before")]);
    analyzer
        .take(&Batch::decode(&bytes).unwrap(), BEGIN - 900 * MS)
        .unwrap();
    // The analyzer never got revision 2, because this union ended before the analyzer read the
    // topology again.
    analyzer.follow(Revision(3), topology(1, None));
    analyzer.know(BEGIN + 900 * MS);
    let bytes = batch(NEW, 2, &[record(BEGIN, true, b"new owner's")]);
    analyzer
        .take(&Batch::decode(&bytes).unwrap(), BEGIN)
        .unwrap();
    let mut out = Out::default();
    analyzer.flush(|delivered| out.put(delivered));
    assert_eq!(out.contents, [b"before".to_vec(), b"new owner's".to_vec()]);
}

#[test]
fn what_was_refused_is_counted_by_bucket_from_the_accounts_begin() {
    let mut analyzer = analyzer();
    analyzer.follow(Revision(5), topology(0, None));
    analyzer.know(BEGIN + 900 * MS);
    analyzer.count_from(BEGIN);
    let foreign = [
        record(BEGIN - MS, false, b"before"),
        record(BEGIN, false, b"after"),
    ];
    let bytes = batch(NEW, 5, &foreign);
    analyzer
        .take(&Batch::decode(&bytes).unwrap(), BEGIN)
        .unwrap();
    analyzer.flush(|delivered| panic!("{delivered:?}"));
    assert_eq!(analyzer.counters().foreign, 2);
    assert_eq!((analyzer.refused()[9], analyzer.refused()[8]), (1, 0));
}

#[test]
fn a_record_of_after_the_last_look_is_taken_though_its_topology_is_unheard() {
    let mut analyzer = analyzer();
    analyzer.follow(Revision(5), topology(0, None));
    analyzer.know(BEGIN);
    let bytes = batch(NEW, 6, &[record(BEGIN, false, b"newer")]);
    analyzer
        .take(&Batch::decode(&bytes).unwrap(), BEGIN)
        .unwrap();
    assert_eq!(analyzer.unheard(), Some(Revision(6)));
    let mut out = Out::default();
    analyzer.flush(|delivered| out.put(delivered));
    assert_eq!(out.contents, [b"newer"]);
}

#[test]
fn forged_ids_do_not_lock_nodes_out_for_ever() {
    let mut analyzer = analyzer();
    let take = |analyzer: &mut Analyzer, id: u32, now: u64| {
        let bytes = batch(NodeId(id), 1, &[record(now, false, b"x")]);
        analyzer.take(&Batch::decode(&bytes).unwrap(), now)
    };
    for id in 0..u32::try_from(MOST_NODES).unwrap() {
        take(&mut analyzer, id, BEGIN).unwrap();
    }
    assert_eq!(take(&mut analyzer, 9999, BEGIN), Err(Refusal::Full));
    assert_eq!(analyzer.counters().crowded_batches, 1);
    take(&mut analyzer, 9999, BEGIN + LATE + MS).unwrap();
    let received = |id| analyzer.received(NodeId(id), 1, 0);
    assert_eq!(received(9999).map(|counts| counts[9]), Some(1));
    assert_eq!(received(0), None);
}

#[test]
fn slots_do_not_keep_the_memory_of_every_burst() {
    let mut analyzer = analyzer();
    for step in 0..200u64 {
        let now = BEGIN + step * 50 * MS;
        let sent: Vec<_> = (0..20)
            .map(|at| record(now + at * 2 * MS, false, b"x"))
            .collect();
        let bytes = batch_of(step, &sent);
        analyzer.take(&Batch::decode(&bytes).unwrap(), now).unwrap();
        analyzer.release(now, |_| ());
    }
    // The records of half a second wait, in about 200 of the 4096 slots. The slots of earlier
    // records must have freed their memory.
    assert!(analyzer.timeline.slots_with_memory() < 400);
}

#[test]
fn a_session_that_had_nothing_to_send_yet_is_of_the_counters_that_came_later() {
    let mut analyzer = analyzer();
    let empty = node(OLD).idle(Revision(1), BEGIN).unwrap();
    let batch = Batch::decode(&empty).unwrap();
    analyzer.take(&batch, BEGIN).unwrap();
    let since = BEGIN + 100 * SKEW;
    assert!(analyzer.received(OLD, batch.head.boot, since).is_some());
}

#[test]
fn a_batch_is_done_when_all_of_it_was_given_out() {
    let mut analyzer = analyzer();
    let mut given = Vec::new();
    let bytes = batch_of(
        0,
        &[
            record(BEGIN, false, b"a"),
            record(BEGIN + 2000 * MS, false, b"b"),
        ],
    );
    let first = Batch::decode(&bytes).unwrap();
    analyzer.take(&first, BEGIN).unwrap();
    let due = analyzer.due(&first.head);
    assert_eq!(analyzer.take(&first, BEGIN), Err(Refusal::Again));
    assert_eq!(analyzer.due(&first.head), due, "a repeat changes nothing");
    let mut release = |analyzer: &mut Analyzer, now| {
        analyzer.release(now, |delivered| given.push(delivered.record.captured[0]));
        (analyzer.given() >= due, given.len())
    };
    assert_eq!(release(&mut analyzer, BEGIN), (false, 0));
    // The clocks of the analyzer and the nodes are set back by 15 minutes.
    assert_eq!(release(&mut analyzer, BEGIN - 900_000 * MS), (true, 2));
    let stranger = Head {
        node: NEW,
        ..first.head
    };
    assert_eq!(analyzer.due(&stranger), 0);
}
