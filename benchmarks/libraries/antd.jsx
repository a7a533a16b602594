import React, { useState } from "react"; import { createRoot } from "react-dom/client"; import dayjs from "dayjs";
import { Select, DatePicker, Switch, Slider, Rate, Cascader, TreeSelect, Tree, Table, Form, Input, InputNumber, Button, Upload, Dropdown, Checkbox, Radio, Segmented, Tabs, Modal, Transfer, AutoComplete, TimePicker, Mentions, ColorPicker, Collapse, Steps, Tag, Popconfirm, Menu } from "antd";
const s = window.state = {}; const set = (k) => (v) => { s[k] = v?.target ? (v.target.value ?? v.target.checked) : v?.format ? v.format("YYYY-MM-DD") : v; };
const tree = [{ title: "Fruits", value: "f", key: "f", children: [{ title: "Apple", value: "a", key: "a" }, { title: "Pear", value: "p", key: "p" }] }, { title: "Roots", value: "r", key: "r", children: [{ title: "Carrot", value: "c", key: "c" }] }];
const App = () => { const [open, setOpen] = useState(false); const [keys, setKeys] = useState([]); return <div style={{ padding: 12 }}><Tabs items={[
 { key: "form", label: "Form", children: <Form layout="vertical" style={{ display: "grid", gridTemplateColumns: "repeat(3,1fr)", gap: "0 16px" }}>
  <Form.Item label="City" name="city"><Select options={["Oslo", "Rome", "Lima"].map((v) => ({ value: v }))} onChange={set("city")} /></Form.Item>
  <Form.Item label="Tags" name="tags"><Select mode="multiple" options={["red", "blue", "green"].map((v) => ({ value: v }))} onChange={set("tags")} /></Form.Item>
  <Form.Item label="Search city"><Select showSearch placeholder="Type to search" options={["Oslo", "Rome", "Lima"].map((v) => ({ value: v }))} onChange={set("scity")} /></Form.Item>
  <Form.Item label="Born" name="born"><DatePicker onChange={set("born")} defaultPickerValue={dayjs("2026-05-01")} /></Form.Item>
  <Form.Item label="Stay"><DatePicker.RangePicker defaultPickerValue={[dayjs("2026-05-01"), dayjs("2026-06-01")]} onChange={(v) => { s.stay = v?.map((d) => d.format("YYYY-MM-DD")); }} /></Form.Item>
  <Form.Item label="Time"><TimePicker format="HH:mm" needConfirm={false} onChange={(v) => { s.time = v?.format("HH:mm"); }} /></Form.Item>
  <Form.Item label="Live" name="live" valuePropName="checked"><Switch onChange={set("live")} /></Form.Item>
  <Form.Item label="Volume"><Slider onChange={set("volume")} defaultValue={30} /></Form.Item>
  <Form.Item label="Range"><Slider range onChange={set("range")} defaultValue={[20, 60]} /></Form.Item>
  <Form.Item label="Stars"><Rate onChange={set("stars")} /></Form.Item>
  <Form.Item label="Amount"><InputNumber min={0} max={9} defaultValue={3} onChange={set("amount")} /></Form.Item>
  <Form.Item label="Place"><Cascader options={[{ value: "no", label: "Norway", children: [{ value: "osl", label: "Oslo" }, { value: "brg", label: "Bergen" }] }]} onChange={set("place")} /></Form.Item>
  <Form.Item label="Food"><TreeSelect treeData={tree} treeDefaultExpandAll onChange={set("food")} /></Form.Item>
  <Form.Item label="Auto"><AutoComplete options={[{ value: "alpha" }, { value: "beta" }]} onChange={set("auto")} /></Form.Item>
  <Form.Item label="Note"><Mentions options={[{ value: "ann", label: "ann" }]} onChange={set("note")} /></Form.Item>
  <Form.Item label="Agree"><Checkbox onChange={(e) => { s.agree = e.target.checked; }}>I agree</Checkbox></Form.Item>
  <Form.Item label="Size"><Radio.Group onChange={set("size")} options={["S", "M", "L"]} optionType="button" /></Form.Item>
  <Form.Item label="View"><Segmented options={["Day", "Week"]} onChange={set("view")} /></Form.Item>
  <Form.Item label="Password"><Input.Password onChange={set("password")} /></Form.Item>
  <Form.Item label="File"><Upload beforeUpload={(f) => { s.file = f.name; return false; }}><Button>Choose file</Button></Upload></Form.Item>
  <Form.Item label="Colour"><ColorPicker onChange={(c) => { s.colour = c.toHexString(); }} /></Form.Item>
 </Form> },
 { key: "data", label: "Data", children: <><Table size="small" rowSelection={{ onChange: set("rows") }} pagination={{ pageSize: 5 }} columns={[{ title: "Name", dataIndex: "name", sorter: (a, b) => a.age - b.age, filters: [{ text: "Ann", value: "Ann" }], onFilter: () => true }, { title: "Age", dataIndex: "age", sorter: true }, { title: "Do", render: (_, r) => <><Button size="small" type="link" onClick={() => { s.edit = r.name; }}>Edit</Button><Popconfirm title="Sure?" onConfirm={() => { s.del = r.name; }}><Button size="small" type="link" danger>Delete</Button></Popconfirm></> }]} dataSource={Array.from({ length: 12 }, (_, i) => ({ key: i, name: "Person " + i, age: 20 + i }))} expandable={{ expandedRowRender: () => "more" }} />
   <Tree checkable defaultExpandAll treeData={tree} onCheck={set("tree")} draggable onDrop={(i) => { s.drop = i.dragNode.key + ">" + i.node.key; }} /></> },
 { key: "more", label: "More", children: <><Button onClick={() => setOpen(true)}>Open dialog</Button> <Dropdown menu={{ items: [{ key: "1", label: "Cut" }, { key: "2", label: "More", children: [{ key: "3", label: "Deep" }] }], onClick: (e) => { s.menu = e.key; } }}><a onClick={(e) => e.preventDefault()}>Hover menu</a></Dropdown>
   <Menu mode="horizontal" onClick={(e) => { s.nav = e.key; }} items={[{ key: "home", label: "Home" }, { key: "sub", label: "Products", children: [{ key: "p1", label: "Lamps" }, { key: "p2", label: "Chairs" }] }]} />
   <Transfer dataSource={[{ key: "a", title: "Alpha" }, { key: "b", title: "Beta" }]} targetKeys={keys} onChange={(k) => { setKeys(k); s.transfer = k; }} render={(i) => i.title} />
   <Collapse items={[{ key: 1, label: "Details", children: "Hidden text" }]} onChange={set("collapse")} /> <Tag closable onClose={() => { s.tag = "closed"; }}>News</Tag>
   <Tag.CheckableTag checked={false} onChange={set("ctag")}>Sports</Tag.CheckableTag><Steps current={0} onChange={set("step")} items={[{ title: "One" }, { title: "Two" }]} />
   <Modal title="Dialog" open={open} onOk={() => { s.ok = 1; setOpen(false); }} onCancel={() => setOpen(false)}><Input placeholder="Reason" /></Modal></> }]} /></div>; };
createRoot(document.getElementById("app")).render(<App />);
