//! Which files are kept, by the options on the command line.

use clap::Parser;

use super::super::{Arguments, Rotation, rotation};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

fn parsed(options: &str) -> anyhow::Result<Rotation> {
    let words = ["analyzer", "--write", "/tmp"].into_iter();
    let words = words.chain(options.split_whitespace());
    rotation(&Line::try_parse_from(words)?.arguments)
}

#[test]
fn the_number_of_files_is_a_limit_by_default_and_where_it_is_given() {
    let limits = |options: &str| {
        let keep = parsed(options).unwrap().keep;
        (keep.files, keep.bytes, keep.free)
    };
    let gib = |gib: u64| Some(gib << 30);
    assert_eq!(limits(""), (Some(168), None, None));
    assert_eq!(limits("--keep 5"), (Some(5), None, None));
    assert_eq!(limits("--keep-size 204800"), (None, gib(200), None));
    assert_eq!(limits("--keep-free 10240"), (None, None, gib(10)));
    let all = "--keep 7 --keep-size 1024 --keep-free 1024";
    assert_eq!(limits(all), (Some(7), gib(1), gib(1)));
}

#[test]
fn a_limit_that_one_file_exceeds_is_refused() {
    let said = parsed("--keep-size 1023").unwrap_err().to_string();
    assert!(said.contains("less than --rotate-size 1024"), "{said}");
    assert!(parsed("--keep-size 1023 --rotate-size 1023").is_ok());
    for option in ["--keep-size=2048", "--keep-free=1", "--compress"] {
        let without = Line::try_parse_from(["analyzer", option]);
        assert!(without.is_err_and(|error| error.to_string().contains("--write <DIR>")));
    }
    assert!(parsed("--keep-size 0").is_err() && parsed("--keep-free 0").is_err());
}
