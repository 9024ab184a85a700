//! Exports how packets were selected, and how many were selected: PSAMP's report interpretations
//! (RFC 5476, 6.5).

use crate::record::{Algorithm, Selector, Statistics};
use crate::section::{SELECTION_SEQUENCE_ID, SELECTOR_ID};
use crate::template::{FIRST_ID, Field, Template};

/// The template of a selector with systematic count-based sampling.
pub(crate) const SYSTEMATIC: Template = Template {
    id: FIRST_ID + 3,
    scope: 2,
    fields: &[
        SELECTION_SEQUENCE_ID,
        SELECTOR_ID,
        SELECTOR_ALGORITHM,
        (305, 4), // samplingPacketInterval
        (306, 4), // samplingPacketSpace
    ],
};

/// The template of a selector with a hash. The hash's initial value is left out, because anybody
/// who knows this secret can make packets that all go to one node.
pub(crate) const HASH: Template = Template {
    id: FIRST_ID + 4,
    scope: 2,
    fields: &[
        SELECTION_SEQUENCE_ID,
        SELECTOR_ID,
        SELECTOR_ALGORITHM,
        (327, 4), // hashIPPayloadOffset
        (328, 4), // hashIPPayloadSize
        (329, 4), // hashOutputRangeMin
        (330, 4), // hashOutputRangeMax
        (331, 4), // hashSelectedRangeMin
        (332, 4), // hashSelectedRangeMax
        (333, 1), // hashDigestOutput
    ],
};

/// The template of the counts of a selector.
pub(crate) const STATISTICS: Template = Template {
    id: FIRST_ID + 6,
    scope: 2,
    fields: &[
        SELECTION_SEQUENCE_ID,
        SELECTOR_ID,
        (323, 8), // observationTimeMilliseconds
        (318, 8), // selectorIdTotalPktsObserved
        (319, 8), // selectorIdTotalPktsSelected
    ],
};

const SELECTOR_ALGORITHM: Field = (304, 2);

const COUNT_BASED: u16 = 1;
const BOB: u16 = 6;
/// The boolean `true` in IPFIX.
const TRUE: u8 = 1;

pub(crate) fn template(selector: &Selector) -> &'static Template {
    match selector.algorithm {
        Algorithm::Systematic { .. } => &SYSTEMATIC,
        Algorithm::Bob { .. } => &HASH,
    }
}

pub(crate) fn encode_selector(selector: &Selector, bytes: &mut Vec<u8>) {
    bytes.extend(selector.revision.to_be_bytes());
    bytes.extend(selector.bucket.to_be_bytes());
    match selector.algorithm {
        Algorithm::Systematic { interval, space } => {
            bytes.extend(COUNT_BASED.to_be_bytes());
            bytes.extend(interval.to_be_bytes());
            bytes.extend(space.to_be_bytes());
        }
        Algorithm::Bob {
            modulus,
            payload_len,
        } => {
            bytes.extend(BOB.to_be_bytes());
            let bucket = u32::from(selector.bucket);
            let last = modulus.saturating_sub(1);
            for number in [0, payload_len, 0, last, bucket, bucket] {
                bytes.extend(u32::to_be_bytes(number));
            }
            bytes.push(TRUE);
        }
    }
}

pub(crate) fn encode_statistics(statistics: &Statistics, bytes: &mut Vec<u8>) {
    bytes.extend(statistics.revision.to_be_bytes());
    bytes.extend(statistics.bucket.to_be_bytes());
    let milliseconds = u64::try_from(statistics.time.as_millis()).unwrap_or(u64::MAX);
    for number in [milliseconds, statistics.observed, statistics.selected] {
        bytes.extend(number.to_be_bytes());
    }
}
