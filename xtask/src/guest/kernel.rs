//! Gets one of Debian's kernels with its modules, and a static busybox. The packages are
//! downloaded, unpacked and kept in target/guest, and never installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Release;
use super::architecture::Architecture;
use crate::{archive, tree};

/// Debian's own archives, for machines of other distributions.
const ARCHIVES: [(&str, &str); 2] = [
    ("http://deb.debian.org/debian", ""),
    ("http://deb.debian.org/debian-security", "-security"),
];
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Directories of modules that are large and that a guest does not need.
const UNUSED_MODULES: [&str; 9] = [
    "sound",
    "drivers/gpu",
    "drivers/infiniband",
    "drivers/media",
    "drivers/net/wireless",
    "drivers/scsi",
    "drivers/staging",
    "drivers/usb",
    "fs/xfs",
];

/// An unpacked kernel.
#[derive(Debug)]
pub(super) struct Kernel {
    dir: PathBuf,
    version: String,
    pub(super) architecture: &'static Architecture,
}

impl Kernel {
    /// The kernel of a release. It is downloaded once and kept.
    pub(super) fn of(release: &Release) -> Result<Self> {
        let dir = tree::target()?.join("guest").join(release.name);
        tree::make_once(&dir, |half| {
            make(release, half).with_context(|| format!("Debian's {}", release.suite))
        })?;
        let version = only_name(&dir.join("lib/modules"))?;
        Ok(Self {
            dir,
            version,
            architecture: release.architecture,
        })
    }

    /// The kernel's version, such as `6.1.0-56-amd64`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn image(&self) -> PathBuf {
        self.dir.join(format!("boot/vmlinuz-{}", self.version))
    }

    pub(super) fn modules(&self) -> PathBuf {
        self.dir.join("lib/modules").join(&self.version)
    }

    pub(super) fn busybox(&self) -> PathBuf {
        self.dir.join("busybox")
    }

    /// The files of these modules and of the modules that they need, in the order of loading.
    pub(super) fn module_files(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let mut files: Vec<PathBuf> = Vec::new();
        for name in names {
            let mut modprobe = Command::new("modprobe");
            modprobe.arg("-d").arg(&self.dir);
            modprobe.args(["-S", &self.version, "--show-depends", name]);
            for file in inserted(&tree::output(&mut modprobe)?) {
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        }
        Ok(files)
    }
}

/// The files in modprobe's lines `insmod FILE OPTIONS`. For a built-in driver there is no such
/// line.
fn inserted(listing: &str) -> Vec<PathBuf> {
    let file = |line: &str| {
        line.strip_prefix("insmod ")?
            .split(' ')
            .next()
            .map(PathBuf::from)
    };
    listing.lines().filter_map(file).collect()
}

fn make(release: &Release, dir: &Path) -> Result<()> {
    let apt = Apt::new(release, dir)?;
    apt.run("apt-get", &["update", "-qq"])?;
    // The package that depends on the newest kernel of its release.
    let newest = format!("linux-image-{}", release.architecture.name);
    let depends = apt.run("apt-cache", &["depends", &newest])?;
    let package = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: linux-image-"))
        .with_context(|| format!("no kernel in {depends:?}"))?;
    let package = format!("linux-image-{package}");
    println!("  downloading {package}");
    apt.run("apt-get", &["download", "-qq", &package, "busybox-static"])?;
    let root = dir.join("root");
    archive::unpack(dir, &root)?;
    keep(&root, dir)?;
    fs::remove_dir_all(&root)?;
    fs::remove_dir_all(&apt.state)?;
    let version = only_name(&dir.join("lib/modules"))?;
    tree::output(Command::new("depmod").arg("-b").arg(dir).arg(version)).map(drop)
}

/// Moves the files that a guest needs out of the unpacked packages. Newer packages have all files
/// below `usr`.
fn keep(root: &Path, dir: &Path) -> Result<()> {
    let place = |name: &str| {
        let places = [root.join(name), root.join("usr").join(name)];
        let found = places.into_iter().find(|path| path.exists());
        found.with_context(|| format!("the packages have no {name}"))
    };
    fs::rename(place("bin/busybox")?, dir.join("busybox"))?;
    fs::rename(place("boot")?, dir.join("boot"))?;
    fs::create_dir_all(dir.join("lib"))?;
    let modules = dir.join("lib/modules");
    fs::rename(place("lib/modules")?, &modules)?;
    let kernel = modules.join(only_name(&modules)?).join("kernel");
    for unused in UNUSED_MODULES.map(|name| kernel.join(name)) {
        if unused.exists() {
            fs::remove_dir_all(&unused).with_context(|| format!("{}", unused.display()))?;
        }
    }
    // modprobe searches `lib` or `usr/lib` below its root, depending on its distribution.
    fs::create_dir_all(dir.join("usr"))?;
    std::os::unix::fs::symlink("../lib", dir.join("usr/lib")).context("linking usr/lib")
}

/// The name of the directory's only entry.
fn only_name(dir: &Path) -> Result<String> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let names: Vec<String> = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    ensure!(names.len() == 1, "{} has {names:?}", dir.display());
    Ok(names.concat())
}

/// apt with its lists in a directory of ours. The machine's own lists stay unchanged.
struct Apt<'a> {
    dir: &'a Path,
    state: PathBuf,
    /// Debian's name of the packages' architecture.
    architecture: &'static str,
}

impl<'a> Apt<'a> {
    fn new(release: &Release, dir: &'a Path) -> Result<Self> {
        let state = dir.join("apt");
        for part in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(state.join(part)).context("making directories for apt")?;
        }
        fs::write(state.join("status"), "")?;
        fs::write(state.join("sources.list"), sources(release)?)?;
        Ok(Self {
            dir,
            state,
            architecture: release.architecture.name,
        })
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let state = self.state.display();
        let mut command = Command::new(program);
        command.current_dir(self.dir).args([
            format!("-oDir::Etc::SourceList={state}/sources.list"),
            "-oDir::Etc::SourceParts=/nonexistent".to_owned(),
            "-oDir::Etc::PreferencesParts=/nonexistent".to_owned(),
            format!("-oDir::State={state}"),
            format!("-oDir::State::status={state}/status"),
            format!("-oDir::Cache={state}"),
            format!("-oAPT::Architecture={}", self.architecture),
            "-oAPT::Sandbox::User=root".to_owned(),
            "-oAcquire::Languages=none".to_owned(),
        ]);
        tree::output(command.args(arguments))
    }
}

/// The machine's own package sources for a release and its security updates. If the machine has
/// none, the addresses of Debian's archives.
fn sources(release: &Release) -> Result<String> {
    let line = |uri: &str, suite: &str| format!("deb [signed-by={KEYS}] {uri} {suite} main\n");
    let suites = ["", "-security"].map(|pocket| format!("{}{pocket}", release.suite));
    let own = archive::sources("Debian", release.suite)?;
    let own = own
        .iter()
        .filter(|source| suites.contains(&source.suite) && source.component == "main");
    let own: String = own.map(|it| line(&it.uri, &it.suite)).collect();
    if !own.is_empty() {
        return Ok(own);
    }
    let debians = ARCHIVES.map(|(uri, pocket)| line(uri, &format!("{}{pocket}", release.suite)));
    Ok(debians.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_loaded_in_modprobes_order() {
        let listing = "insmod /k/virtio.ko \nbuiltin pci\ninsmod /k/9p.ko.xz a=1\n";
        assert_eq!(
            inserted(listing),
            ["/k/virtio.ko", "/k/9p.ko.xz"].map(PathBuf::from)
        );
    }
}
