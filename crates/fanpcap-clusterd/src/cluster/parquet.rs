//! `fanpcap cluster parquet`: converts an analyzer's files to Parquet, for queries.

use std::fs::{self, DirBuilder, File, FileTimes, Permissions};
use std::mem;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use fanpcap_cluster::{NodeId, Revision};
use fanpcap_merge::{Captured, Part, PartFile};
use fanpcap_terminal::streams;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::Result as Done;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::pcapng;

/// Converts each file of an analyzer to a Parquet file with a row for each packet
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The files that 'fanpcap analyzer' wrote
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Where the Parquet files go. A file with its source's modification time is not written again
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

/// The columns: `time` in nanoseconds since 1970, the node's id, the bucket, the revision of the
/// topology, the length on the wire, and the packet's first bytes.
const COLUMNS: &str = "message record {
    required int64 time (TIMESTAMP(NANOS, true));
    required int32 node (INTEGER(32, false));
    required int32 bucket (INTEGER(16, false));
    required int64 revision (INTEGER(64, false));
    required int32 length (INTEGER(32, false));
    required binary header;
}";

/// Maximum number of packets that are written at once.
const ROWS: usize = if cfg!(test) { 1 << 10 } else { 1 << 16 };

/// Packets that wait to be written, by column. Signed numbers have the bits of the unsigned values.
#[derive(Default)]
struct Rows {
    time: Vec<i64>,
    node: Vec<i32>,
    bucket: Vec<i32>,
    revision: Vec<i64>,
    length: Vec<i32>,
    header: Vec<ByteArray>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let output = &arguments.output;
    // Only this user may read captured packets, whatever the umask is.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(output);
    made.with_context(|| format!("cannot make the directory {}", output.display()))?;
    for path in &arguments.files {
        let shown = path.display();
        let name = name(path).with_context(|| format!("{shown} has no name"))?;
        let to = output.join(name);
        let part = convert(path, &to).with_context(|| format!("converting {shown}"))?;
        streams::note(&match part {
            Some(Part { packets, cut }) => {
                let cut = if cut { ", cut off at its end" } else { "" };
                format!("{shown}: {packets} packets{cut}\n")
            }
            None => format!("{shown}: {} is up to date\n", to.display()),
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// The name of the Parquet file for `path`. It does not depend on whether `path` is compressed.
fn name(path: &Path) -> Option<PathBuf> {
    let name = Path::new(path.file_name()?);
    let is_compressed = name.extension().is_some_and(|end| end == "zst");
    let plain = if is_compressed {
        name.file_stem()?
    } else {
        name.as_os_str()
    };
    Some(Path::new(plain).with_extension("parquet"))
}

/// Converts a file. Returns `None` if the file has not changed since its last conversion.
fn convert(path: &Path, to: &Path) -> Result<Option<Part>> {
    let changed = |path: &Path| fs::metadata(path)?.modified();
    let time = changed(path)?;
    if changed(to).is_ok_and(|it| it == time) {
        return Ok(None);
    }
    let (unfinished, file) = PartFile::begin(to)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    let schema = Arc::new(parse_message_type(COLUMNS)?);
    let settings = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(file.try_clone()?, schema, settings)?;
    let mut rows = Rows::default();
    let part = fanpcap_merge::read(path, &mut |packet| {
        rows.push(packet)?;
        if rows.time.len() >= ROWS {
            mem::take(&mut rows).write(writer.next_row_group()?)?;
        }
        Ok(())
    })?;
    if !rows.time.is_empty() {
        rows.write(writer.next_row_group()?)?;
    }
    writer.close()?;
    // Gives the Parquet file the modification time that the source had when it was read. If the
    // source changes later, the times differ, and the next run converts the source again.
    file.set_times(FileTimes::new().set_modified(time))?;
    unfinished.finish()?;
    Ok(Some(part))
}

impl Rows {
    fn push(&mut self, packet: &Captured<'_>) -> Result<()> {
        let origin = || -> Option<(NodeId, Revision, u32)> {
            let (node, revision) = pcapng::origin(packet.interface?, packet.description?)?;
            Some((node, revision, packet.queue?))
        };
        let (node, revision, bucket) = origin().context(
            "a packet without node, topology or bucket: name files that 'fanpcap analyzer' of \
             this version wrote",
        )?;
        self.time.push(signed(packet.stamp));
        self.node.push(narrow(node.0));
        self.bucket.push(narrow(bucket));
        self.revision.push(signed(revision.0));
        self.length.push(narrow(packet.original_len));
        self.header.push(ByteArray::from(packet.data.to_vec()));
        Ok(())
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

/// The signed number with the same bits.
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
    use std::fs::OpenOptions;
    use std::io::Write;

    use fanpcap_cluster::analyzer::Delivered;
    use fanpcap_cluster::record::Record;
    use fanpcap_testkit::Scratch;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;

    /// A row: time, node, bucket, revision, length, header.
    type Row = (u64, u32, u16, u64, u32, Vec<u8>);

    fn rows(path: &Path) -> Vec<Row> {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let rows = reader.get_row_iter(None).unwrap();
        let row = |row: Done<parquet::record::Row>| {
            let row = row.unwrap();
            (
                u64::try_from(row.get_long(0).unwrap()).unwrap(),
                row.get_uint(1).unwrap(),
                row.get_ushort(2).unwrap(),
                row.get_ulong(3).unwrap(),
                row.get_uint(4).unwrap(),
                row.get_bytes(5).unwrap().data().to_vec(),
            )
        };
        rows.map(row).collect()
    }

    /// The packets of an analyzer's file, from two nodes and two topologies.
    fn packets(count: u64) -> Vec<Row> {
        let packet = |number: u64| {
            let bucket = u16::try_from(number % 4096).unwrap();
            let header = vec![bucket.to_le_bytes()[0]; usize::from(bucket % 70)];
            let (node, revision) = [(u32::MAX, u64::MAX), (1, 0)][usize::from(bucket % 3 == 0)];
            (number << 32, node, bucket, revision, 1500, header)
        };
        (0..count).map(packet).collect()
    }

    fn written(packets: &[Row]) -> Vec<u8> {
        let mut bytes = Vec::new();
        pcapng::section(&mut bytes);
        for origin in [
            (NodeId(u32::MAX), Revision(u64::MAX)),
            (NodeId(1), Revision(0)),
        ] {
            pcapng::interface(&mut bytes, 1, origin);
        }
        for (stamp, node, bucket, revision, wire_length, captured) in packets {
            let packet = Delivered {
                node: NodeId(*node),
                link: 1,
                revision: Revision(*revision),
                record: Record {
                    stamp: *stamp,
                    wire_length: *wire_length,
                    bucket: *bucket,
                    marked: false,
                    captured,
                },
                late: false,
            };
            pcapng::packet(&mut bytes, u32::from(*node == 1), &packet);
        }
        bytes
    }

    #[test]
    fn rows_have_all_that_the_analyzer_knew() {
        let scratch = Scratch::new().unwrap();
        let packets = packets(2 * ROWS as u64 + 10);
        let source = scratch.file("records-1.5.pcapng");
        fs::write(&source, written(&packets)).unwrap();
        let output = scratch.file("tables");
        let arguments = Arguments {
            files: vec![source.clone()],
            output: output.clone(),
        };
        run(&arguments).unwrap();
        let table = output.join("records-1.5.parquet");
        assert_eq!(rows(&table), packets);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&output), mode(&table)), (0o700, 0o600));
        assert_eq!(convert(&source, &table).unwrap(), None);
        let compressed = PathBuf::from("a/records-1.5.pcapng.zst");
        assert_eq!(name(&compressed), Some("records-1.5.parquet".into()));
        // The analyzer continues the file, and is killed while it writes a packet.
        let more = written(&packets[..1]);
        let mut file = OpenOptions::new().append(true).open(&source).unwrap();
        file.write_all(&more[..more.len() - 4]).unwrap();
        let part = convert(&source, &table).unwrap().unwrap();
        assert_eq!((part.packets, part.cut), (packets.len() as u64, true));
        assert_eq!(rows(&table), packets);
        assert_eq!(fs::read_dir(&output).unwrap().count(), 1);
    }

    #[test]
    fn other_captures_are_refused_and_leave_nothing() {
        let scratch = Scratch::new().unwrap();
        let packets = packets(2);
        let whole = written(&packets);
        let node = whole.windows(4).position(|it| it == b"node").unwrap();
        let mut renamed = whole;
        renamed[node..node + 4].copy_from_slice(b"eth0");
        let source = scratch.file("a.pcapng");
        fs::write(&source, renamed).unwrap();
        let to = scratch.file("a.parquet");
        let said = format!("{:#}", convert(&source, &to).unwrap_err());
        assert!(
            said.contains("'fanpcap analyzer' of this version"),
            "{said}"
        );
        assert_eq!(fs::read_dir(source.parent().unwrap()).unwrap().count(), 1);
    }
}
