//! Finds the name that a mistyped word may mean.

/// The candidate nearest to `word`; `None` if too many letters differ. At most one letter, or a
/// third of the longer word's letters, may differ.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_within(usize::MAX, word, candidates)
}

/// As [`nearest`], but at most `limit` letters may differ.
pub fn nearest_within<'a>(
    limit: usize,
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    nearest_of(limit, word, &mut candidates.into_iter())
}

/// This function is not generic, so that the library has its code only once.
fn nearest_of<'a>(
    limit: usize,
    word: &str,
    candidates: &mut dyn Iterator<Item = &'a str>,
) -> Option<&'a str> {
    if word.len() > WORD_MAX {
        return None;
    }
    let near = |candidate: &'a str| {
        let allowed = (word.len().max(candidate.len()) / 3).max(1).min(limit);
        let comparable = word.len().abs_diff(candidate.len()) <= allowed;
        let distance = comparable.then(|| distance(word, candidate))?;
        (distance <= allowed).then_some((distance, candidate))
    };
    let near = candidates.filter_map(near);
    near.min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Maximum length of a word that is compared. The limit is needed because the time of a comparison
/// grows with the product of the two lengths.
const WORD_MAX: usize = 64;

/// The Damerau-Levenshtein distance of two words (optimal string alignment), without regard to
/// ASCII case.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_ascii_lowercase(), b.to_ascii_lowercase());
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = above[j] + usize::from(a[i] != b[j]);
            let mut least = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_a_transposition_once() {
        for (a, b, expected) in [
            ("tcp", "tcp", 0),
            ("TCP", "tcp", 0),
            ("tpc", "tcp", 1),
            ("", "tcp", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn nearest_allows_more_in_longer_names() {
        let names = ["tcp", "steer_flow", "steer_field_symmetric"];
        assert_eq!(nearest("steer_flwo", names), Some("steer_flow"));
        assert_eq!(nearest("steer_symmetric_field", ["steer_field"]), None);
        assert_eq!(nearest("xx", names), None);
    }

    #[test]
    fn nearest_within_allows_no_more_than_its_limit() {
        let names = ["steer_field_symmetric"];
        assert_eq!(nearest("steer_field_symmtr", names), Some(names[0]));
        assert_eq!(
            nearest_within(3, "steer_field_symmtr", names),
            Some(names[0])
        );
        assert_eq!(nearest_within(2, "steer_field_symmtr", names), None);
    }

    #[test]
    fn long_words_have_no_neighbours() {
        let [long, longer] = [64, 65].map(|length| "x".repeat(length));
        assert_eq!(nearest(&long, [longer.as_str()]), Some(longer.as_str()));
        assert_eq!(nearest(&longer, [long.as_str()]), None);
    }
}
