// Text from untrusted programs, sanitised for files that other programs read.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "common/book/foreign_text.hpp"

using namespace workbook::book;

TEST_CASE("escapes and control characters go, text stays") {
  CHECK(clean_text("plain\ttext\nof two lines") == "plain\ttext\nof two lines");
  CHECK(clean_text("\x1b[31mred\x1b[0m and \x1b[1;4mbold\x1b[m") == "red and bold");
  CHECK(clean_text("\x1b]0;a title\x07rest") == "rest");
  CHECK(clean_text("\x1b]8;;http://x\x1b\\link") == "link");
  CHECK(clean_text(std::string("a\0b\x01\x08\x7f\r\nc", 9)) == "ab\nc");
  CHECK(clean_text("an end in \x1b") == "an end in ");
  CHECK(clean_text("turned \xE2\x80\xAE around\xE2\x81\xA6.") == "turned  around.");
  CHECK(clean_text("an end in \x1b[31") == "an end in ");
  CHECK(clean_text("\xC2\x9B"
                   "31m") == "31m");  // the one-byte CSI, as U+009B
}

TEST_CASE("bytes that are not UTF-8 become U+FFFD, so that JSON accepts the text") {
  CHECK(clean_text("Gr\xC3\xBC\xC3\x9F"
                   "e") == "Grüße");
  CHECK(clean_text("Gr\xFC"
                   "n") == "Gr\xEF\xBF\xBDn");
  CHECK(clean_text("\xC0\xAF") == "\xEF\xBF\xBD\xEF\xBF\xBD");                  // overlong
  CHECK(clean_text("\xED\xA0\x80") == "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
  CHECK(clean_text("\xE2\x82") == "\xEF\xBF\xBD\xEF\xBF\xBD");                  // cut off
  CHECK(clean_text("\xEF\xBF\xBE") == "");                                      // U+FFFE
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += char(byte);
  const nlohmann::json json = clean_text(all);
  CHECK_NOTHROW(json.dump());
}

TEST_CASE("long text is cut") {
  CHECK(clean_text(std::string(50, 'x'), 10) == "xxxxxxxxxx…");
  CHECK(clean_text(std::string(10, 'x'), 10) == "xxxxxxxxxx");
}

TEST_CASE("text cannot break out of XML, Markdown and CSV") {
  CHECK(xml_text("<b a=\"1\" c='2'>&") == "&lt;b a=&quot;1&quot; c=&apos;2&apos;&gt;&amp;");
  CHECK(markdown_block("a\n```\nb") == "````\na\n```\nb\n````\n");
  CHECK(markdown_block("plain\n") == "```\nplain\n```\n");
  CHECK(markdown_line("a|b <script> `x`\nsecond") == "a\\|b \\<script\\> \\`x\\` second");
  CHECK(csv_cell("anna") == "anna");
  CHECK(csv_cell("a,\"b\"") == "\"a,\"\"b\"\"\"");
  CHECK(csv_cell("=cmd()") == "'=cmd()");
  CHECK(points_text(3) == "3");
  CHECK(points_text(2.5) == "2.5");
}
