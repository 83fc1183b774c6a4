"""XML from outside, read with expat: no document type, so no entities but the five of XML, and nothing external."""

from collections.abc import Callable
from typing import NoReturn
from xml.parsers import expat

from cc_tts.errors import ClientError


class XmlReader:
    """Calls ``start`` with a name and attributes, ``characters`` with text and ``end`` with a name, in the document's order.

    ``fault`` makes the error that is raised for a document that cannot be read, of a sentence with line and column.
    """

    def __init__(
        self,
        *,
        start: Callable[[str, dict[str, str]], None],
        end: Callable[[str], None],
        characters: Callable[[str], None],
        fault: Callable[[str], ClientError],
    ) -> None:
        self._fault = fault
        self._parser = expat.ParserCreate("utf-8")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = start
        self._parser.EndElementHandler = end
        self._parser.CharacterDataHandler = characters
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype

    def read(self, document: bytes) -> None:
        """Read the whole document, UTF-8 whatever it declares; ``fault``'s error if it is not well-formed."""
        try:
            self._parser.Parse(document, True)  # noqa: FBT003 - the parser's own signature
        except expat.ExpatError as error:
            raise self.malformed(expat.errors.messages[error.code]) from None

    @property
    def line(self) -> int:
        """Where the parser stands."""
        return self._parser.CurrentLineNumber

    def malformed(self, detail: str) -> ClientError:
        """The error for a fault where the parser stands."""
        return self._fault(f"line {self.line}, column {self._parser.CurrentColumnNumber + 1}: {detail}")

    def _refuse_doctype(self, *_: object) -> NoReturn:
        raise self.malformed("a document type is not taken")
