"""Lines of text files, across blocks, with everything that can be wrong with their bytes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import lines as lines_module
from longtail.data.lines import (
    BLOCK,
    byte_blocks,
    line_blocks,
    new_folder,
    open_text_lines,
    read_raw_texts,
    whole_lines,
    write_lines,
)
from longtail.errors import DataError, RunError


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=9)),
    st.integers(1, 12),
    st.booleans(),
)
def test_lines_do_not_depend_on_blocks(texts: list[str], block: int, end: bool) -> None:
    """Oracle: split at line feeds, whatever else Unicode calls a line end."""
    content = "\n".join(texts).encode() + (b"\n" if end and texts else b"")
    wanted = content.decode().removesuffix("\n").split("\n") if content else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "BLOCK", block)
        import tempfile

        with tempfile.TemporaryDirectory() as home:
            path = put(Path(home) / "x.txt", content)
            assert list(open_text_lines(path)) == [
                line.removeprefix("\ufeff") if number == 0 else line for number, line in enumerate(wanted)
            ]
            numbered = [(first + place, line) for first, found in line_blocks(path) for place, line in enumerate(found)]
            assert [number for number, _ in numbered] == list(range(1, len(wanted) + 1))
            assert all(data.endswith(b"\n") for _, data in list(byte_blocks(path))[:-1])


@pytest.mark.parametrize("block", [1, 2, 3, 4])
def test_a_byte_order_mark_may_come_in_pieces_or_alone(block: int) -> None:
    """As a pipe brings it. A mark alone was taken for the end, and nothing behind it was read."""
    pieces = ["\ufeffa\nb".encode()[start : start + block] for start in range(0, 6, block)]
    found = b"".join(lines for _, lines in whole_lines(lambda: pieces.pop(0) if pieces else b""))
    assert found == b"a\nb"


@pytest.mark.parametrize("block", [1, 2, 3])
def test_what_is_no_text_is_told_in_pieces_too(block: int) -> None:
    pieces = [b"PK\x03\x04 and more"[start : start + block] for start in range(0, 8, block)]
    with pytest.raises(DataError, match="is a zip archive"):
        list(whole_lines(lambda: pieces.pop(0) if pieces else b""))


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz"])
def test_windows_line_ends_and_byte_order_mark(tmp_path: Path, name: str) -> None:
    path = put(tmp_path / name, "\ufeffäpfel\r\nbirnen\r\n".encode())
    assert list(open_text_lines(path)) == ["äpfel", "birnen"]


def test_a_line_longer_than_many_blocks(tmp_path: Path) -> None:
    path = put(tmp_path / "x.gz", b"a\n" + b"b" * (3 * BLOCK) + b"\nc")
    assert [len(line) for line in open_text_lines(path)] == [1, 3 * BLOCK, 1]


def fails(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        list(open_text_lines(path))
    assert caught.value.hint
    return str(caught.value)


def test_invalid_utf8_names_the_line(tmp_path: Path) -> None:
    path = put(tmp_path / "x.txt", b"a\nb\nc\xe4\nd\n")
    assert f"{path}, line 3: byte 0xe4 is not valid UTF-8" in fails(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("title\nbees\n".encode("utf-16"), "UTF-16"),
        (b"\xfe\xff" + "title\nbees\n".encode("utf-16-be"), "UTF-16"),
        (b"PK\x03\x04\x14\x00\x06\x00\n", "spreadsheet"),
        (gzip.compress(b"title\nbees\n", mtime=0), "compressed by gzip"),
        (b"PAR1\x15\x04\x15\n", "is a Parquet file"),
        (b"title\rbees\rroses\r", "carriage returns alone"),
    ],
)
def test_what_is_no_lines_of_utf8_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    for name in ("x.txt", "x.txt.gz"):
        path = put(tmp_path / name, content)
        assert said in fails(path)
        with pytest.raises(DataError, match=said):  # also where broken texts are mended
            list(line_blocks(path, on_mended=lambda line: None))
    assert list(open_text_lines(put(tmp_path / "one.txt", b"a single line\r"))) == ["a single line"]
    assert list(open_text_lines(put(tmp_path / "two.txt", b"a line\na\rlast one"))) == ["a line", "a\rlast one"]


def test_invalid_utf8_in_a_later_block(tmp_path: Path) -> None:
    line = b"x" * 99 + b"\n"
    count = 3 * BLOCK // 100
    assert f"line {count + 1}: byte 0xff" in fails(put(tmp_path / "x.txt", line * count + b"\xff\n"))


def test_truncated_gzip(tmp_path: Path) -> None:
    # Lines that do not compress, so that much of the file can be read before it ends.
    import random

    numbers = random.Random(5)
    content = b"".join(b"%030x\n" % numbers.getrandbits(120) for _ in range(40_000))
    path = tmp_path / "x.gz"
    whole = gzip.compress(content, mtime=0)
    path.write_bytes(whole[: len(whole) // 2])
    message = fails(path)
    assert "truncated" in message
    line = int(message.split("line ")[1].split(":")[0])
    assert 10_000 < line < 21_000


def test_not_gzip_and_altered_gzip(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(b"plain text\n")
    assert "is not a gzip file" in fails(path)
    whole = bytearray(gzip.compress(b"a\nb\n", mtime=0))
    whole[-5] ^= 1  # the checksum
    path.write_bytes(bytes(whole))
    assert "CRC" in fails(path)
    whole = bytearray(gzip.compress(b"some text that is compressed\n" * 9, mtime=0))
    whole[12] ^= 255
    path.write_bytes(bytes(whole))
    assert f"{path}, line 1" in fails(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    assert f"{tmp_path / 'x'}: the file is missing" in fails(tmp_path / "x")
    assert "Is a directory" in fails(tmp_path)


def test_raw_texts_are_mended_and_counted(tmp_path: Path) -> None:
    path = put(tmp_path / "x.txt", b"fine\r\n\nf\xfcr\n\xc3\xa4\n")
    assert read_raw_texts(path) == (["fine", "", "f\ufffdr", "ä"], 1)


def test_gzip_is_written_without_name_and_time(tmp_path: Path) -> None:
    for name in ("one.gz", "two.gz"):
        write_lines(tmp_path / name, ["ä", "", "b"])
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()
    assert gzip.decompress((tmp_path / "one.gz").read_bytes()) == "ä\n\nb\n".encode()
    header = (tmp_path / "one.gz").read_bytes()[:8]
    assert header[3:8] == bytes(5)  # no flags, time 0


def test_a_folder_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "new"

    class Stop(Exception):
        pass

    def half() -> None:
        with new_folder(target) as aside:
            (aside / "half").write_text("x")
            assert not target.exists()
            raise Stop

    with pytest.raises(Stop):
        half()
    assert list((tmp_path / "deep").iterdir()) == []
    with new_folder(target) as aside:
        (aside / "whole").write_text("x")
    assert [path.name for path in target.iterdir()] == ["whole"]
    with pytest.raises(RunError, match="not empty"), new_folder(target):
        pass


def test_a_new_folder_does_not_take_the_place_of_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell would stand in a folder that is gone, and see nothing of the new one."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="current folder"), new_folder(Path()):
        pass
    assert Path.cwd().samefile(tmp_path)


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    import errno

    def fill() -> None:
        with new_folder(tmp_path / "new"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(RunError, match="no space left"):
        fill()
    assert list(tmp_path.iterdir()) == []
