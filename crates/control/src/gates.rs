//! Features that can be switched off, as `--feature-gates NAME=true,NAME=false`.

use std::str::FromStr;

/// The patches of a DaemonSet, on by default. Off: patches stay stored, new pods get the template as it is, and those
/// that run count as current until the template changes.
const NODE_LABEL_PATCHES: &str = "AdvancedDaemonSetNodeLabelPatches";

/// What is switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gates {
    /// Whether the patches of DaemonSets are served.
    pub node_label_patches: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self { node_label_patches: true }
    }
}

impl FromStr for Gates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut gates = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not of the form NAME=true"))?;
            let is_on = value.parse().map_err(|_| format!("{name} is {value:?}: use true or false"))?;
            match name {
                NODE_LABEL_PATCHES => gates.node_label_patches = is_on,
                _ => return Err(format!("no feature gate {name:?}; there is: {NODE_LABEL_PATCHES}")),
            }
        }
        Ok(gates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_by_name() {
        assert_eq!("".parse(), Ok(Gates { node_label_patches: true }));
        assert_eq!("AdvancedDaemonSetNodeLabelPatches=false".parse(), Ok(Gates { node_label_patches: false }));
        for (text, expected) in [
            ("Patches=true", "no feature gate \"Patches\""),
            ("AdvancedDaemonSetNodeLabelPatches", "NAME=true"),
            ("AdvancedDaemonSetNodeLabelPatches=on", "use true or false"),
        ] {
            let error = text.parse::<Gates>().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
