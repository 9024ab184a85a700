//! What a node has counted, as AVPs.

use fanpcap_buckets::layout::BUCKETS;

use super::super::avp::{List, code, halves, joined};
use super::super::fields::{BodyError, Fields};
use crate::identity::{NodeId, Revision};
use crate::witness::{Beacon, Report, Summary};

/// Writes a count: its upper half only where that is not 0.
fn put(to: &mut List, codes: [u8; 2], count: u64) {
    let [upper, lower] = halves(count);
    if upper != 0 {
        to.put(codes[0], upper);
    }
    to.put(codes[1], lower);
}

pub(super) fn write(to: &mut List, report: &Report) {
    let Summary {
        node,
        boot,
        since,
        stamp,
        revision,
        ring,
        marked,
        beacon,
    } = report.summary;
    to.put(code::NODE_ID, node.0)
        .put_wide(code::BOOT, boot)
        .put_wide(code::FOLLOWS, revision.0);
    for value in [since, stamp, ring, marked, beacon.sequence, beacon.seen] {
        to.put_wide(code::SUMMARY, value);
    }
    for (seen, captured) in report.seen.iter().zip(report.captured.iter()) {
        put(to, [code::SEEN_UPPER, code::SEEN], *seen);
        if *captured != 0 {
            put(to, [code::CAPTURED_UPPER, code::CAPTURED], *captured);
        }
    }
}

fn summary(from: Fields<'_>) -> Result<Summary, BodyError> {
    let [since, stamp, ring, marked, sequence, seen] = from.wides(code::SUMMARY)?;
    Ok(Summary {
        node: NodeId(from.one(code::NODE_ID)?),
        boot: from.wide(code::BOOT)?,
        revision: Revision(from.wide(code::FOLLOWS)?),
        since,
        stamp,
        ring,
        marked,
        beacon: Beacon { sequence, seen },
    })
}

pub(super) fn read(from: Fields<'_>) -> Result<Report, BodyError> {
    let mut report = Report {
        summary: summary(from)?,
        seen: Box::new([0; BUCKETS]),
        captured: Box::new([0; BUCKETS]),
    };
    let mut next = 0;
    let mut upper = 0;
    for avp in from.0 {
        match avp.code {
            code::SEEN_UPPER | code::CAPTURED_UPPER => upper = avp.value,
            code::SEEN => {
                let seen = report.seen.get_mut(next);
                *seen.ok_or(BodyError::Count(code::SEEN))? = joined(upper, avp.value);
                (next, upper) = (next + 1, 0);
            }
            code::CAPTURED => {
                let last = next.checked_sub(1).ok_or(BodyError::Missing(code::SEEN))?;
                report.captured[last] = joined(upper, avp.value);
                upper = 0;
            }
            _ => {}
        }
    }
    match next {
        BUCKETS => Ok(report),
        _ => Err(BodyError::Missing(code::SEEN)),
    }
}
