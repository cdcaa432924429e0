//! The layers below a container's root.

use std::path::Path;

/// The lower directories of the overlay at `root`, from the text of `/proc/self/mountinfo`; empty if nothing is mounted
/// there. containerd unpacks a layer once, into a directory that it never uses for another one.
pub(crate) fn layers(mountinfo: &str, root: &Path) -> Vec<String> {
    let root = root.to_string_lossy();
    // The last mount is on top of the others.
    let line = mountinfo.lines().rev().find(|line| {
        let place = line.split(' ').nth(4);
        place.is_some_and(|place| unescaped(place) == root)
    });
    let options = line.and_then(|line| line.rsplit(' ').next());
    let mut layers = Vec::new();
    for option in options.unwrap_or_default().split(',') {
        if let Some(("lowerdir" | "lowerdir+", paths)) = option.split_once('=') {
            layers.extend(paths.split(':').map(unescaped));
        }
    }
    layers
}

/// Space, tab, newline and backslash are octal numbers there.
fn unescaped(text: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .into_iter()
    .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_those_of_the_topmost_overlay() {
        let text = "\
30 1 0:40 / /b/rootfs rw - overlay overlay rw,lowerdir=/s/1/fs,upperdir=/s/9/fs,workdir=/s/9/work
31 30 0:41 / /b/rootfs rw,relatime shared:5 - overlay overlay rw,lowerdir=/s/3/fs:/s/2/fs,upperdir=/s/8/fs
32 1 0:42 / /other\\040place rw - overlay overlay rw,lowerdir+=/s/5/fs,lowerdir+=/s/4/fs,upperdir=/u
33 1 0:43 / /plain rw - ext4 /dev/sda rw
";
        let of = |root: &str| layers(text, Path::new(root));
        assert_eq!(of("/b/rootfs"), ["/s/3/fs", "/s/2/fs"]);
        assert_eq!(of("/other place"), ["/s/5/fs", "/s/4/fs"]);
        assert!(of("/plain").is_empty() && of("/missing").is_empty());
    }
}
