//! The loader's cache, /etc/ld.so.cache, which lists libraries with their names and paths. The
//! format is `cache_file_new` in glibc's sysdeps/generic/dl-cache.h.

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER_LEN: usize = 48;
const ENTRY_LEN: usize = 24;

/// The paths of the library `soname` in the cache, in the cache's order of preference. They include
/// libraries of other architectures, which fail to load. If the cache is malformed, returns the
/// paths that can be read.
pub fn paths<'a>(cache: &'a [u8], soname: &str) -> Vec<&'a str> {
    // On old systems, the file begins with the old format. Offsets in the new format count from its
    // own magic number.
    let Some(start) = cache
        .windows(MAGIC.len())
        .position(|window| window == MAGIC)
    else {
        return Vec::new();
    };
    let cache = &cache[start..];
    let count = u32_at(cache, MAGIC.len()).unwrap_or(0) as usize;
    let entries = cache
        .get(HEADER_LEN..)
        .unwrap_or_default()
        .chunks_exact(ENTRY_LEN);
    entries
        .take(count)
        .filter_map(|entry| Some((u32_at(entry, 4)?, u32_at(entry, 8)?)))
        .filter(|&(key, _)| string(cache, key) == Some(soname))
        .filter_map(|(_, value)| string(cache, value))
        .collect()
}

fn string(cache: &[u8], offset: u32) -> Option<&str> {
    let bytes = cache.get(offset as usize..)?;
    let end = bytes.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&bytes[..end]).ok()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(u32::try_from(entries.len()).unwrap().to_ne_bytes());
        bytes.resize(HEADER_LEN, 0);
        let mut strings = Vec::new();
        let base = HEADER_LEN + entries.len() * ENTRY_LEN;
        for (key, value) in entries {
            let mut put = |text: &str| {
                let at = u32::try_from(base + strings.len()).unwrap();
                strings.extend(text.as_bytes());
                strings.push(0);
                at.to_ne_bytes()
            };
            let (key, value) = (put(key), put(value));
            bytes.extend([0; 4]);
            bytes.extend(key);
            bytes.extend(value);
            bytes.extend([0; 12]);
        }
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn a_name_is_found_in_both_layouts() {
        let new = cache(&[
            ("libc.so.6", "/lib/libc.so.6"),
            ("libpcap.so.1", "/opt/libpcap.so.1"),
        ]);
        assert_eq!(paths(&new, "libpcap.so.1"), ["/opt/libpcap.so.1"]);
        let both = [b"ld.so-1.7.0 and old entries".to_vec(), new].concat();
        assert_eq!(paths(&both, "libpcap.so.1"), ["/opt/libpcap.so.1"]);
    }

    #[test]
    fn broken_caches_yield_nothing_and_never_panic() {
        let whole = cache(&[("libpcap.so.1", "/opt/libpcap.so.1")]);
        for len in 0..whole.len() {
            paths(&whole[..len], "libpcap.so.1");
        }
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] ^= 0xff;
            paths(&broken, "libpcap.so.1");
        }
    }

    #[test]
    fn the_systems_cache_knows_libc() {
        let cache = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
        assert!(cache.is_empty() || !paths(&cache, "libc.so.6").is_empty());
    }
}
