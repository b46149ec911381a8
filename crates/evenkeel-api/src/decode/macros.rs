//! Macro that generates the JSON and protobuf decoders of a type from one definition.

/// Defines a struct and its decoders:
///
/// ```text
/// message! {
///     /// IP address of a pod.
///     pub struct PodIp("k8s.io.api.core.v1.PodIP") {
///         /// IPv4 or IPv6 address.
///         ip: Text = 1 "ip",
///     }
/// }
/// ```
///
/// The number is the field's number in upstream's protobuf definition, and the string is its name in JSON. Upstream
/// inlines the fields of some structs in JSON. Such a field comes last, and is written `=> inline_field: Type = 2`.
macro_rules! message {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident($upstream:literal) {
            $($(#[$doc:meta])* $field:ident: $type:ty = $number:literal $json:literal,)*
            $(=> $(#[$inline_doc:meta])* $inline_field:ident: $inline_type:ty = $inline_number:literal)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
            $($(#[$inline_doc])* pub $inline_field: $inline_type,)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: <$type as $crate::decode::Field>::absent(),)*
                    $($inline_field: <$inline_type as $crate::decode::Field>::absent(),)?
                }
            }
        }

        impl $crate::decode::Object for $name {
            fn field(&mut self, name: &str) -> Option<&mut dyn $crate::decode::JsonField> {
                match name {
                    $($json => Some(&mut self.$field),)*
                    _ => None$(.or_else(|| $crate::decode::Object::field(&mut self.$inline_field, name)))?,
                }
            }
        }

        impl $crate::decode::Message for $name {
            const DEFINITION: $crate::decode::Definition = $crate::decode::Definition {
                name: $upstream,
                fields: &[
                    $(($number, $json, &<$type as $crate::decode::Field>::SHAPE),)*
                    $(($inline_number, "", &<$inline_type as $crate::decode::Field>::SHAPE),)?
                ],
            };

            fn merge_fields(&mut self, reader: &mut $crate::decode::Reader<'_>) -> Result<(), $crate::decode::WireError> {
                use $crate::decode::Field;
                let Self { $($field,)* $($inline_field,)? } = std::mem::take(self);
                $(let mut $field = <$type as Field>::into_partial($field);)*
                $(let mut $inline_field = <$inline_type as Field>::into_partial($inline_field);)?
                while let Some((number, wire)) = reader.tag()? {
                    match number {
                        $($number => <$type as Field>::merge(&mut $field, wire, reader).map_err(|e| e.at_field($json))?,)*
                        $($inline_number => <$inline_type as Field>::merge(&mut $inline_field, wire, reader)?,)?
                        _ => reader.skip(number, wire)?,
                    }
                }
                *self = Self {
                    $($field: <$type as Field>::finish($field).map_err(|e| e.at_field($json))?,)*
                    $($inline_field: <$inline_type as Field>::finish($inline_field)?,)?
                };
                Ok(())
            }
        }

        impl $crate::decode::Field for $name {
            const SHAPE: $crate::decode::Shape =
                $crate::decode::Shape::Message(&<$name as $crate::decode::Message>::DEFINITION);
            type Partial = Self;

            fn absent() -> Self {
                Self::default()
            }

            fn slot(&mut self) -> $crate::decode::Slot<'_> {
                *self = Self::default();
                $crate::decode::Slot::Object(self)
            }

            fn into_partial(self) -> Self {
                self
            }

            fn merge(
                partial: &mut Self,
                wire: $crate::decode::Wire,
                reader: &mut $crate::decode::Reader<'_>,
            ) -> Result<(), $crate::decode::WireError> {
                let bytes = reader.expect_bytes(wire)?;
                $crate::decode::Message::merge_fields(partial, &mut $crate::decode::Reader::new(bytes))
            }

            fn finish(partial: Self) -> Result<Self, $crate::decode::WireError> {
                Ok(partial)
            }
        }
    };
}

/// Implements `View` for a message: `view!(Pod, "", "v1", "Pod", "pods", namespaced)`. The arguments are group, version,
/// kind, plural, and the scope: `namespaced` or `cluster_scoped`.
macro_rules! view {
    (@is_namespaced namespaced) => {
        true
    };
    (@is_namespaced cluster_scoped) => {
        false
    };
    ($name:ident, $group:literal, $version:literal, $kind:literal, $plural:literal, $scope:ident $(,)?) => {
        impl $crate::View for $name {
            fn kind() -> $crate::Kind {
                let is_namespaced = view!(@is_namespaced $scope);
                $crate::Kind::new($group, $version, $kind, $plural, is_namespaced)
            }

            const PROTOBUF: bool = true;

            fn meta(&self) -> &$crate::Meta {
                &self.meta
            }

            fn at_version(&self, version: &$crate::Text) -> Option<Self> {
                let mut copy = self.clone();
                copy.meta.resource_version = version.clone();
                Some(copy)
            }

            fn decode(
                bytes: &[u8],
                encoding: $crate::Encoding,
            ) -> Result<Self, $crate::DecodeError> {
                $crate::decode::decode_message($kind, bytes, encoding)
            }
        }
    };
}

pub(crate) use {message, view};
