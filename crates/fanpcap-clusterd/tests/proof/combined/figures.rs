//! The numbers of offered, captured, doubled and lost packets of each bucket, as counted from
//! tcpdump's files and by the analyzer.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use fanpcap_buckets::layout::BUCKETS;

/// The figures of each bucket, in the order of the analyzer's columns.
pub(super) const NAMES: [&str; 4] = ["offered", "captured", "doubles", "lost"];
pub(super) const CAPTURED: usize = 1;
pub(super) const DOUBLES: usize = 2;
pub(super) const LOST: usize = 3;

/// The figures of one bucket, or the sums over all buckets.
pub(super) type Counts = [i64; 4];

/// The account of one bucket, or of all buckets: the least and the greatest value of each figure.
pub(super) type Bounds = [(i64, i64); 4];

/// The sums over all buckets.
pub(super) fn sum(rows: &[Bounds]) -> Bounds {
    std::array::from_fn(|at| {
        let figures = rows.iter().map(|row| row[at]);
        figures.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
    })
}

pub(super) fn width(bounds: (i64, i64)) -> i64 {
    bounds.1 - bounds.0
}

/// Reads the analyzer's account of each bucket from the file that the analyzer writes.
pub(super) fn account(file: &Path) -> Result<Vec<Bounds>> {
    let text = fs::read_to_string(file)?;
    let mut lines = text.lines();
    let ends = NAMES.map(|name| format!(",{name}_least,{name}_most"));
    let header = format!("bucket{}", ends.concat());
    ensure!(lines.next() == Some(&header), "{header:?} in {text:.200}");
    let rows = lines.enumerate().map(|(bucket, line)| {
        let row = row(line).filter(|row| row.0 == bucket);
        Ok(row.with_context(|| format!("bucket {bucket}: {line:?}"))?.1)
    });
    let rows: Vec<Bounds> = rows.collect::<Result<_>>()?;
    ensure!(rows.len() == BUCKETS, "{} buckets", rows.len());
    Ok(rows)
}

fn row(line: &str) -> Option<(usize, Bounds)> {
    let (bucket, figures) = line.split_once(',')?;
    let numbers = figures.split(',').map(str::parse);
    let numbers: Vec<i64> = numbers.collect::<Result<_, _>>().ok()?;
    let mut bounds = Bounds::default();
    ensure_len(&numbers)?;
    for (pair, bounds) in numbers.chunks_exact(2).zip(&mut bounds) {
        *bounds = (pair[0], pair[1]);
    }
    Some((bucket.parse().ok()?, bounds))
}

fn ensure_len(numbers: &[i64]) -> Option<()> {
    (numbers.len() == 2 * NAMES.len()).then_some(())
}

/// What became of the packets of each bucket. `buckets` has the bucket of each packet that was
/// sent. `captured` has a packet's number once for each node that captured the packet.
pub(super) fn truth(buckets: &[usize], captured: &[u64]) -> Result<Vec<Counts>> {
    let mut times = vec![0_i64; buckets.len()];
    for number in captured {
        let times = times.get_mut(usize::try_from(*number)?);
        *times.with_context(|| format!("packet {number} was never sent"))? += 1;
    }
    let mut rows = vec![Counts::default(); BUCKETS];
    for (bucket, times) in buckets.iter().zip(times) {
        let [offered, captured, doubles, lost] = &mut rows[*bucket];
        *offered += 1;
        *captured += times;
        *doubles += (times - 1).max(0);
        *lost += i64::from(times == 0);
    }
    Ok(rows)
}

#[test]
fn truth_is_by_bucket() {
    let rows = truth(&[0, 1, 1, 5], &[0, 1, 1, 1]).unwrap();
    let wanted = [
        [1, 1, 0, 0],
        [2, 3, 2, 1],
        [0; 4],
        [0; 4],
        [0; 4],
        [1, 0, 0, 1],
    ];
    assert_eq!(rows[..6], wanted);
    assert!(truth(&[0], &[1]).is_err());
}
