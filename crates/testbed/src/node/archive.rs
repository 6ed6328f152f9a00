//! Writing tar archives: as much of the format as an image of a few files needs.

use std::io::{self, Write};

/// What an entry is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Entry<'a> {
    Folder,
    File { content: &'a [u8], mode: u32 },
    Link(&'a str),
}

/// Writes entries in the order given; the same entries always make the same bytes.
pub(super) fn write<'a>(
    out: &mut impl Write,
    entries: impl IntoIterator<Item = (&'a str, Entry<'a>)>,
) -> io::Result<()> {
    for (path, entry) in entries {
        let (kind, mode, content, target): (u8, u32, &[u8], &str) = match entry {
            Entry::Folder => (b'5', 0o755, &[], ""),
            Entry::File { content, mode } => (b'0', mode, content, ""),
            Entry::Link(target) => (b'2', 0o777, &[], target),
        };
        out.write_all(&header(path, kind, mode, content.len(), target)?)?;
        out.write_all(content)?;
        out.write_all(&[0; 512][..(512 - content.len() % 512) % 512])?;
    }
    // Two empty blocks end an archive.
    out.write_all(&[0; 1024])
}

fn header(path: &str, kind: u8, mode: u32, size: usize, target: &str) -> io::Result<[u8; 512]> {
    let mut block = [0; 512];
    put(&mut block, 0, 100, path)?;
    put(&mut block, 100, 8, &format!("{mode:07o}"))?;
    put(&mut block, 108, 8, "0000000")?;
    put(&mut block, 116, 8, "0000000")?;
    put(&mut block, 124, 12, &format!("{size:011o}"))?;
    put(&mut block, 136, 12, "00000000000")?;
    block[156] = kind;
    put(&mut block, 157, 100, target)?;
    put(&mut block, 257, 8, "ustar\x0000")?;
    // The sum is taken with its own field as spaces.
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut block, 148, 8, &format!("{sum:06o}\0 "))?;
    Ok(block)
}

fn put(block: &mut [u8; 512], at: usize, room: usize, text: &str) -> io::Result<()> {
    if text.len() > room {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{text} is too long for a tar header")));
    }
    block[at..at + text.len()].copy_from_slice(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_reads_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = Vec::new();
        let content = vec![b'x'; 1000];
        let entries = [
            ("bin/", Entry::Folder),
            ("bin/tool", Entry::File { content: &content, mode: 0o755 }),
            ("bin/link", Entry::Link("tool")),
        ];
        write(&mut bytes, entries).unwrap();
        let path = dir.path().join("a.tar");
        std::fs::write(&path, bytes).unwrap();
        let status =
            std::process::Command::new("tar").arg("-xf").arg(&path).arg("-C").arg(dir.path()).status().unwrap();
        assert!(status.success());
        assert_eq!(std::fs::read(dir.path().join("bin/link")).unwrap(), content);
    }

    #[test]
    fn a_path_too_long_is_refused() {
        let long = "x".repeat(101);
        assert!(write(&mut Vec::new(), [(long.as_str(), Entry::Folder)]).is_err());
    }
}
