//! The Parquet files that an analyzer writes, for queries over many records.
//!
//! A Parquet file has its directory at its end. So a file gets its name when it is whole, and what
//! an analyzer that is killed had begun is lost.

use std::fs::{self, File};
use std::io;
use std::mem;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use fanpcap_cluster::analyzer::Delivered;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::Result as Done;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::TypePtr;

use super::files::{self, Rotation};

/// The columns: `time` in nanoseconds since 1970, the node's id, the bucket, the revision of the
/// topology by which the node captured it, the bytes on the wire, and the first of these bytes.
const COLUMNS: &str = "message record {
    required int64 time (TIMESTAMP(NANOS, true));
    required int32 node (INTEGER(32, false));
    required int32 bucket (INTEGER(16, false));
    required int64 revision (INTEGER(64, false));
    required int32 length (INTEGER(32, false));
    required binary header;
}";

/// Records that are written at once.
const ROWS: usize = if cfg!(test) { 1 << 10 } else { 1 << 16 };

/// Nanoseconds between two attempts to write to a full disk.
const RETRY: u64 = 1_000_000_000;

/// How files end, before and after they are whole.
const UNFINISHED: &str = ".parquet.part";
const END: &str = ".parquet";

/// The Parquet files of a directory.
#[derive(Debug)]
pub(super) struct Tables {
    directory: PathBuf,
    rotation: Rotation,
    schema: TypePtr,
    rows: Rows,
    open: Option<Open>,
    next_try: u64,
    /// Records of files that are whole.
    pub(super) written: u64,
    /// Records that there was no room for.
    pub(super) unwritten: u64,
    /// Why the last write failed, while it is so.
    pub(super) trouble: Option<String>,
}

/// A file that is not whole yet.
#[derive(Debug)]
struct Open {
    writer: SerializedFileWriter<File>,
    since: u64,
    /// Records in it.
    rows: u64,
    unfinished: PathBuf,
}

/// Records that wait to be written, by column. The kinds of numbers are Parquet's: the bits are
/// those of numbers without a sign.
#[derive(Debug, Default)]
struct Rows {
    time: Vec<i64>,
    node: Vec<i32>,
    bucket: Vec<i32>,
    revision: Vec<i64>,
    length: Vec<i32>,
    header: Vec<ByteArray>,
}

impl Tables {
    /// Files in a directory, which is made if it is not there.
    pub(super) fn new(directory: &Path, rotation: Rotation) -> Result<Self> {
        files::make(directory)?;
        Ok(Self {
            directory: directory.to_owned(),
            rotation,
            schema: Arc::new(parse_message_type(COLUMNS)?),
            rows: Rows::default(),
            open: None,
            next_try: 0,
            written: 0,
            unwritten: 0,
            trouble: None,
        })
    }

    /// Takes a record at `now`, in nanoseconds since 1970.
    pub(super) fn put(&mut self, packet: &Delivered<'_>, now: u64) {
        self.rows.push(packet);
        if self.rows.time.len() >= ROWS {
            self.write(now);
        }
    }

    /// Ends the file if it is old enough. Call it once in a while.
    pub(super) fn tick(&mut self, now: u64) {
        let open = self.open.as_ref();
        if open.is_some_and(|open| now.saturating_sub(open.since) >= self.rotation.time) {
            self.finish(now);
        }
    }

    /// Writes what waits, and makes the file whole.
    pub(super) fn finish(&mut self, now: u64) {
        if !self.rows.time.is_empty() {
            self.write(now);
        }
        let Some(open) = self.open.take() else {
            return;
        };
        let rows = open.rows;
        match open.finish() {
            Ok(()) => self.written += rows,
            Err(error) => self.fail(rows, &error, now),
        }
    }

    /// Writes the records that wait as a group of rows.
    fn write(&mut self, now: u64) {
        let rows = mem::take(&mut self.rows);
        let count = rows.time.len() as u64;
        if let Err(error) = self.begin(now) {
            return self.fail(count, &error, now);
        }
        let Some(open) = &mut self.open else {
            // The disk was full a moment ago.
            self.unwritten += count;
            return;
        };
        open.rows += count;
        let written = open.writer.next_row_group().and_then(|to| rows.write(to));
        if let Err(error) = written {
            let lost = open.rows;
            let _ = fs::remove_file(&open.unfinished);
            self.open = None;
            return self.fail(lost, &io::Error::other(error), now);
        }
        if open.writer.bytes_written() as u64 >= self.rotation.bytes {
            self.finish(now);
        }
    }

    /// Begins a file if there is none, and if it is not too early to try.
    fn begin(&mut self, now: u64) -> io::Result<()> {
        if self.open.is_some() || now < self.next_try {
            return Ok(());
        }
        files::retire(&self.directory, END, self.rotation.keep)?;
        let name = files::name(now, UNFINISHED);
        let open = Open::begin(self.directory.join(name), &self.schema, now)?;
        self.open = Some(open);
        self.trouble = None;
        Ok(())
    }

    fn fail(&mut self, lost: u64, error: &io::Error, now: u64) {
        self.unwritten += lost;
        self.trouble = Some(error.to_string());
        self.next_try = now.saturating_add(RETRY);
    }
}

impl Open {
    fn begin(unfinished: PathBuf, schema: &TypePtr, now: u64) -> io::Result<Self> {
        let mut options = File::options();
        let file = options.write(true).create_new(true).mode(0o600);
        let file = file.open(&unfinished)?;
        let settings = Arc::new(WriterProperties::builder().build());
        let writer = SerializedFileWriter::new(file, Arc::clone(schema), settings);
        Ok(Self {
            writer: writer.map_err(io::Error::other)?,
            since: now,
            rows: 0,
            unfinished,
        })
    }

    /// Writes the directory at the file's end, and gives the file its name.
    fn finish(self) -> io::Result<()> {
        let done = self.writer.close().map_err(io::Error::other);
        let named = done.and_then(|_| {
            let name = self.unfinished.with_extension("");
            fs::rename(&self.unfinished, name)
        });
        named.inspect_err(|_| {
            let _ = fs::remove_file(&self.unfinished);
        })
    }
}

impl Rows {
    fn push(&mut self, packet: &Delivered<'_>) {
        let record = &packet.record;
        self.time.push(signed(record.stamp));
        self.node.push(narrow(packet.node.0));
        self.bucket.push(i32::from(record.bucket));
        self.revision.push(signed(packet.revision.0));
        self.length.push(narrow(record.wire_length));
        self.header.push(ByteArray::from(record.captured.to_vec()));
    }

    fn write(&self, mut to: SerializedRowGroupWriter<'_, File>) -> Done<()> {
        column::<Int64Type>(&mut to, &self.time)?;
        column::<Int32Type>(&mut to, &self.node)?;
        column::<Int32Type>(&mut to, &self.bucket)?;
        column::<Int64Type>(&mut to, &self.revision)?;
        column::<Int32Type>(&mut to, &self.length)?;
        column::<ByteArrayType>(&mut to, &self.header)?;
        to.close().map(drop)
    }
}

/// The number with the same bits.
fn signed(number: u64) -> i64 {
    i64::from_ne_bytes(number.to_ne_bytes())
}

fn narrow(number: u32) -> i32 {
    i32::from_ne_bytes(number.to_ne_bytes())
}

/// Writes the next column.
fn column<T: DataType>(to: &mut SerializedRowGroupWriter<'_, File>, values: &[T::T]) -> Done<()> {
    let Some(mut column) = to.next_column()? else {
        return Ok(());
    };
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use fanpcap_cluster::record::Record;
    use fanpcap_cluster::{NodeId, Revision};
    use fanpcap_testkit::Scratch;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn packet(number: u64, captured: &[u8]) -> Delivered<'_> {
        Delivered {
            node: NodeId(u32::MAX),
            link: 1,
            revision: Revision(u64::MAX),
            record: Record {
                stamp: number,
                wire_length: 1500,
                bucket: 4095,
                marked: false,
                captured,
            },
            late: false,
        }
    }

    fn rotation(bytes: u64) -> Rotation {
        Rotation {
            bytes,
            time: 3600 * SECOND,
            keep: 2,
        }
    }

    /// The stamps of all whole files in a directory, file by file.
    fn stamps(directory: &Path) -> Vec<Vec<u64>> {
        let entries = fs::read_dir(directory).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let of = |path: &PathBuf| {
            let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
            let rows = reader.get_row_iter(None).unwrap();
            let rows = rows.map(|row| {
                let row = row.unwrap();
                assert_eq!(row.get_uint(1).unwrap(), u32::MAX);
                assert_eq!(row.get_ushort(2).unwrap(), 4095);
                assert_eq!(row.get_ulong(3).unwrap(), u64::MAX);
                assert_eq!(row.get_uint(4).unwrap(), 1500);
                assert_eq!(row.get_bytes(5).unwrap().data(), b"header");
                u64::try_from(row.get_long(0).unwrap()).unwrap()
            });
            rows.collect()
        };
        paths.iter().map(of).collect()
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let scratch = Scratch::new().unwrap();
        let directory = scratch.file("tables");
        let mut tables = Tables::new(&directory, rotation(u64::MAX)).unwrap();
        let count = ROWS as u64 + 10;
        for number in 0..count {
            tables.put(&packet(number, b"header"), SECOND);
        }
        assert_eq!(
            (tables.written, tables.unwritten),
            (0, 0),
            "no file is whole"
        );
        tables.finish(SECOND);
        assert_eq!((tables.written, tables.unwritten), (count, 0));
        assert_eq!(stamps(&directory), [(0..count).collect::<Vec<_>>()]);
    }

    #[test]
    fn files_that_are_long_or_old_enough_are_whole() {
        let scratch = Scratch::new().unwrap();
        let directory = scratch.file("tables");
        let mut tables = Tables::new(&directory, rotation(1)).unwrap();
        let rows = ROWS as u64;
        for number in 0..3 * rows {
            tables.put(&packet(number, b"header"), SECOND + number);
        }
        tables.put(&packet(7, b"header"), 9 * SECOND);
        tables.tick(9 * SECOND);
        let kept: Vec<usize> = stamps(&directory).iter().map(Vec::len).collect();
        assert_eq!(kept, [ROWS, ROWS], "two are kept");
        tables.finish(9 * SECOND);
        assert_eq!((tables.written, tables.unwritten), (3 * rows + 1, 0));
        assert_eq!(stamps(&directory).pop(), Some(vec![7]));
    }

    #[test]
    fn only_the_analyzers_user_reads_what_was_captured() {
        let scratch = Scratch::new().unwrap();
        let directory = scratch.file("tables");
        let mut tables = Tables::new(&directory, rotation(u64::MAX)).unwrap();
        tables.put(&packet(1, b"header"), SECOND);
        tables.finish(SECOND);
        let file = fs::read_dir(&directory).unwrap().next().unwrap().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&file.path())), (0o700, 0o600));
    }

    #[test]
    fn what_there_is_no_room_for_is_counted_until_there_is() {
        let scratch = Scratch::new().unwrap();
        let directory = scratch.file("tables");
        let mut tables = Tables::new(&directory, rotation(u64::MAX)).unwrap();
        fs::remove_dir(&directory).unwrap();
        tables.put(&packet(1, b"header"), SECOND);
        tables.finish(SECOND);
        assert_eq!((tables.written, tables.unwritten), (0, 1));
        assert!(tables.trouble.is_some());
        fs::create_dir(&directory).unwrap();
        tables.put(&packet(2, b"header"), SECOND + 1);
        tables.finish(SECOND + 1);
        assert_eq!(tables.unwritten, 2, "it is too early to try again");
        tables.put(&packet(3, b"header"), 3 * SECOND);
        tables.finish(3 * SECOND);
        assert_eq!((tables.written, tables.unwritten), (1, 2));
        assert!(tables.trouble.is_none());
        assert_eq!(stamps(&directory), [[3]]);
    }
}
