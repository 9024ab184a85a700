//! Makes the relocations of a loaded shared object point to the object's own definitions again.
//!
//! The system's libpcap calls its own exported functions through slots. The loader fills each slot
//! with the first definition that it finds, and that is our library's. `rebind` puts the object's
//! own definition into each such slot, so that the system's library again calls only itself (ELF
//! gABI chapter 5; psABI relocation numbers). `redirect` puts another address into the slots of one
//! function that the object does not define.

use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

/// The fields of `link_map` whose layout is public (link.h).
#[repr(C)]
pub(crate) struct LinkMap {
    base: usize,
    name: *const libc::c_char,
    dynamic: *const Dyn,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Dyn {
    tag: usize,
    value: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Rela {
    offset: usize,
    info: usize,
    addend: isize,
}

/// `Elf64_Sym`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Sym {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

const DT_PLTRELSZ: usize = 2;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
const DT_JMPREL: usize = 23;
const SHN_UNDEF: u16 = 0;

/// The relocations that hold a symbol's address: GLOB_DAT, JUMP_SLOT, and the absolute word
/// (R_X86_64_64, R_AARCH64_ABS64).
#[cfg(target_arch = "x86_64")]
const SYMBOL_RELOCATIONS: [usize; 3] = [6, 7, 1];
#[cfg(target_arch = "aarch64")]
const SYMBOL_RELOCATIONS: [usize; 3] = [1025, 1026, 257];
/// On other machines nothing is rebound. The system's library works there too, but its internal
/// calls pass through our functions.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const SYMBOL_RELOCATIONS: [usize; 0] = [];

/// The entries of the dynamic section that describe relocations. Their values are absolute
/// addresses, because the loader has already added the load base (glibc, `elf_get_dynamic_info`).
#[derive(Default)]
struct Tables {
    symbols: usize,
    names: usize,
    tables: [(usize, usize); 2],
}

/// Makes the slots of a loaded object's relocations point to the object's own definitions, if the
/// object defines the symbol that a relocation names. Leaves a slot unchanged if its page can't be
/// made writable.
///
/// # Safety
/// `map` is the link map of an object that stays loaded, on a 64-bit system.
pub(crate) unsafe fn rebind(map: *const LinkMap) {
    let own = |base: usize, _: &Tables, named: &Named| {
        let symbol = named.symbol;
        let is_defined = symbol.section != SHN_UNDEF && symbol.value != 0;
        is_defined.then(|| (base + symbol.value).wrapping_add_signed(named.addend))
    };
    // SAFETY: the caller's promise. The object's own definition may stand in each slot of it.
    unsafe { rewrite(map, own) };
}

/// Makes the slots of an object's relocations that name the function `name`, which the object does
/// not define, point to `address`.
///
/// # Safety
/// As [`rebind`], and `address` is that of a function with the same type.
pub(crate) unsafe fn redirect(map: *const LinkMap, name: &CStr, address: usize) {
    let other = |_: usize, tables: &Tables, named: &Named| {
        let at = tables.names as *const libc::c_char;
        let at = at.wrapping_add(usize::try_from(named.symbol.name).ok()?);
        // SAFETY: the names of symbols are C strings in the object's table of names.
        let found = unsafe { CStr::from_ptr(at) };
        (named.symbol.section == SHN_UNDEF && found == name).then_some(address)
    };
    // SAFETY: the caller's promise.
    unsafe { rewrite(map, other) };
}

/// The symbol that a relocation names.
struct Named {
    symbol: Sym,
    addend: isize,
}

/// Stores into each slot of an object's relocations the address that `look` returns, if it returns
/// one.
///
/// # Safety
/// As [`rebind`]. `look` gets the object's base, its tables and the symbol that a relocation names,
/// and returns an address that may stand in the relocation's slot.
unsafe fn rewrite(map: *const LinkMap, look: impl Fn(usize, &Tables, &Named) -> Option<usize>) {
    // SAFETY: the caller promises a valid `map`.
    let map = unsafe { &*map };
    // SAFETY: `dynamic` of a loaded object is its dynamic section.
    let tables = unsafe { tables(map.dynamic) };
    let relro = relro(map.base);
    // If several threads load the library at the same time, no thread may make a page read-only
    // while another thread writes to the page. No function of the loader is called under this lock.
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    for (start, bytes) in tables.tables {
        for index in 0..bytes / mem::size_of::<Rela>() {
            let rela = (start as *const Rela).wrapping_add(index);
            // SAFETY: the loader has used this table and this length to relocate the object.
            let rela = unsafe { *rela };
            // SAFETY: `rela` is a relocation of this object, and the symbol table is this object's.
            let named = unsafe { named(tables.symbols, rela) };
            if let Some(address) = named.and_then(|named| look(map.base, &tables, &named)) {
                // SAFETY: the loader wrote an address to this aligned slot when it relocated the
                // object.
                unsafe { store(map.base + rela.offset, address, &relro) };
            }
        }
    }
}

/// # Safety
/// `dynamic` points to a dynamic section, which ends with a DT_NULL entry.
unsafe fn tables(mut dynamic: *const Dyn) -> Tables {
    let mut found = Tables::default();
    loop {
        // SAFETY: the section ends with DT_NULL (tag 0), at which this loop returns.
        let Dyn { tag, value } = unsafe { *dynamic };
        match tag {
            0 => return found,
            DT_STRTAB => found.names = value,
            DT_SYMTAB => found.symbols = value,
            DT_JMPREL => found.tables[0].0 = value,
            DT_PLTRELSZ => found.tables[0].1 = value,
            DT_RELA => found.tables[1].0 = value,
            DT_RELASZ => found.tables[1].1 = value,
            _ => {}
        }
        // SAFETY: this was not the last entry.
        dynamic = unsafe { dynamic.add(1) };
    }
}

/// The symbol that a relocation names, if the relocation holds a symbol's address.
///
/// # Safety
/// `rela` is a relocation of the object with the symbol table `symbols`.
unsafe fn named(symbols: usize, rela: Rela) -> Option<Named> {
    let kind = rela.info & 0xffff_ffff;
    let position = SYMBOL_RELOCATIONS
        .iter()
        .position(|&relocation| relocation == kind)?;
    let symbol = (symbols as *const Sym).wrapping_add(rela.info >> 32);
    // SAFETY: the loader has looked this symbol up by the same index.
    let symbol = unsafe { *symbol };
    let addend = if position == 2 { rela.addend } else { 0 };
    Some(Named { symbol, addend })
}

/// Stores an address into a slot. The store is atomic, because other threads may call through the
/// slot at the same time.
///
/// # Safety
/// `slot` is the address of an aligned, readable word of a loaded object that holds an address.
unsafe fn store(slot: usize, address: usize, relro: &Range<usize>) {
    // SAFETY: the caller promises an aligned word. Only atomic accesses and the loader use the
    // word.
    let word = unsafe { AtomicPtr::from_ptr(slot as *mut *mut c_void) };
    if word.load(Ordering::Relaxed) as usize == address {
        return;
    }
    let protected = relro.contains(&slot);
    if protected && !protect(slot, libc::PROT_READ | libc::PROT_WRITE) {
        return;
    }
    word.store(address as *mut c_void, Ordering::Release);
    if protected {
        protect(slot, libc::PROT_READ);
    }
}

/// Changes the protection of the page around `address`, which lies in an object's RELRO segment.
fn protect(address: usize, protection: c_int) -> bool {
    let start = page_of(address) as *mut c_void;
    // SAFETY: the page is data of a loaded object, and stays readable.
    unsafe { libc::mprotect(start, page_size(), protection) == 0 }
}

fn page_of(address: usize) -> usize {
    address & !(page_size() - 1)
}

fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The addresses of the object at `base` that the loader made read-only after relocation. Includes
/// only whole pages: leaves out the last page if it also has writable data (glibc,
/// `_dl_protect_relro`).
fn relro(base: usize) -> Range<usize> {
    let mut search = (base, 0..0);
    // SAFETY: `find_relro` gets the address of `search`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(find_relro), (&raw mut search).cast()) };
    search.1
}

unsafe extern "C" fn find_relro(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: `relro` passes the address of a pair of this type.
    let search = unsafe { &mut *search.cast::<(usize, Range<usize>)>() };
    // SAFETY: the loader passes a filled dl_phdr_info.
    let info = unsafe { &*info };
    if usize::try_from(info.dlpi_addr) != Ok(search.0) {
        return 0;
    }
    // SAFETY: the loader gives the object's program headers and their number.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let relro = headers
        .iter()
        .find(|header| header.p_type == libc::PT_GNU_RELRO);
    if let Some(header) = relro {
        let field = |value| usize::try_from(value).unwrap_or(0);
        let start = search.0 + field(header.p_vaddr);
        let end = start + field(header.p_memsz);
        search.1 = page_of(start)..page_of(end);
    }
    1
}
